import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { Script } from 'node:vm'
import type { CompiledCode } from './compiled-code.ts'

/** An action that the bundle exports. It calls `onInstalled` once it has installed something. */
export type Action = (onInstalled: () => void) => Promise<void>

export interface Bundle {
  readonly exports: Readonly<Record<string, Action | undefined>>
  /** Returns everything of the bundle that has been compiled so far; undefined if all of it came from the cache. */
  compile(): Buffer | undefined
}

/**
 * Loads the bundle, whose text is a function in ASCII that can load only modules of Node.js. Node.js compiles what the
 * compiled code lacks, and everything if another version or other options compiled that code.
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
