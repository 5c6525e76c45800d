import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { Script } from 'node:vm'
import type { CompiledCode } from './compiled-code.ts'

/** An action, as the bundle exports it; `onInstalled` is called once it has installed something. */
export type Action = (onInstalled: () => void) => Promise<void>

export interface Bundle {
  readonly exports: Readonly<Record<string, Action | undefined>>
  /** All that has been compiled of the bundle until now; undefined where all of it came from what was kept. */
  compile(): Buffer | undefined
}

/**
 * Loads the bundle, whose text is a function in ASCII and which can load nothing but modules of Node.js. Node.js compiles
 * what is not in the compiled code, and all of it where that was compiled by another version or with other options.
 */
export function loadBundle(file: string, compiled: CompiledCode): Bundle {
  const bytes = readFileSync(file)
  const cachedData = compiled.read(bytes)
  const script = new Script(bytes.toString('latin1'), { filename: file, ...(cachedData && { cachedData }) })
  const module = { exports: {} }
  script.runInThisContext()(module, module.exports, process.getBuiltinModule, dirname(file))
  const isKept = cachedData !== undefined && script.cachedDataRejected === false
  return { exports: module.exports, compile: () => (isKept ? undefined : script.createCachedData()) }
}
