import { isAscii } from 'node:buffer'
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
 * Loads the bundle, which can load nothing but modules of Node.js. Node.js compiles what is not in the compiled code, and
 * all of it where that was compiled by another version or with other options.
 */
export function loadBundle(file: string, compiled: CompiledCode): Bundle {
  const bytes = readFileSync(file)
  const cachedData = compiled.read(bytes)
  // On one line, so that stack traces name the bundle's lines.
  const source = `(function (module, exports, require, __dirname) {${textOf(bytes)}\n})`
  const script = new Script(source, { filename: file, ...(cachedData && { cachedData }) })
  const module = { exports: {} }
  script.runInThisContext()(module, module.exports, process.getBuiltinModule, dirname(file))
  const isKept = cachedData !== undefined && script.cachedDataRejected === false
  return { exports: module.exports, compile: () => (isKept ? undefined : script.createCachedData()) }
}

/** Decoding UTF-8 takes several times as long. */
function textOf(bytes: Buffer): string {
  return bytes.toString(isAscii(bytes) ? 'latin1' : 'utf8')
}
