import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { Script } from 'node:vm'
import type { CompiledCode } from './compiled-code.ts'

/** An action that the bundle exports. Once it has installed something, it calls `onInstalled` with the kind of its run. */
export type Action = (onInstalled: (run: string) => void) => Promise<void>

export interface Bundle {
  readonly exports: Readonly<Record<string, Action | undefined>>
  /** Returns everything of the bundle that has been compiled so far, in this run or in those that kept their code. */
  compile(): Buffer
}

/**
 * Loads the bundle, whose text is a function in ASCII that can load only modules of Node.js. Node.js compiles what the
 * compiled code lacks, and everything if another version or other options compiled that code.
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
