import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { Script } from 'node:vm'
import type { CompiledCode } from './compiled-code.ts'

/** An action that the bundle exports. After a run that changed the host, it calls `onInstalled` with the run's kind. */
export type Action = (onInstalled: (run: string) => void) => Promise<void>

export interface Bundle {
  readonly exports: Readonly<Record<string, Action | undefined>>
  /** Returns all code of the bundle that has been compiled so far, by this run or by the runs whose code it loaded. */
  compile(): Buffer
}

/**
 * Loads the bundle, whose text is a function in ASCII that can load only modules of Node.js. Node.js compiles what the
 * kept code lacks. If that code was compiled by another version or with other options, Node.js compiles everything.
 */
export function loadBundle(file: string, compiled: CompiledCode): Bundle {
  const bytes = readFileSync(file)
  const cachedData = compiled.read(bytes)
  const script = new Script(bytes.toString('latin1'), { filename: file, ...(cachedData && { cachedData }) })
  if (script.cachedDataRejected === true) compiled.discard()
  const module = { exports: {} }
  script.runInThisContext()(module, module.exports, process.getBuiltinModule, dirname(file))
  return { exports: module.exports, compile: () => script.createCachedData() }
}
