import { hash } from 'node:crypto'
import { join } from 'node:path'
import { readPrivateFile, replacePrivateFile } from './private-file.ts'
import { isTrustedFolder, makeTrustedFolder } from './trusted-folder.ts'

const NAME = 'compiled'
const DIGEST_BYTES = 32
/** Ten times the code that a whole deployment compiles. */
const MAX_BYTES = 16 * 1024 * 1024

/**
 * The bundle's code as Node.js has compiled it, in one file of this user's cache. A process that can write that file
 * decides what runs, so it is read and written only in a folder that only this user and root can change. Never throws:
 * without the file, a run merely takes longer.
 *
 * The file is not synced. Its digest exposes a torn file, and one for another bundle or another Node.js; the next run
 * that installs something replaces it.
 */
export class CompiledCode {
  readonly #folder: string | undefined
  /** The inputs that the compiled code depends on. */
  #origin = ''

  /** The folder may not exist yet. */
  constructor(folder: string | undefined) {
    this.#folder = folder
  }

  /** Returns the code kept for exactly this bundle and this Node.js; undefined if there is none that can be trusted. */
  read(bundle: Buffer): Buffer | undefined {
    this.#origin = `${process.version} ${process.arch} ${hash('sha256', bundle)}`
    return attempt('read', () => {
      const folder = this.#folder
      if (folder === undefined || !isTrustedFolder(folder)) return undefined
      const file = readPrivateFile(join(folder, NAME), MAX_BYTES)
      const code = file?.subarray(DIGEST_BYTES)
      return code !== undefined && this.#seal(code).equals(file?.subarray(0, DIGEST_BYTES) ?? code) ? code : undefined
    })
  }

  /** Replaces the kept code, unless there is nothing new. */
  keep(compile: () => Buffer | undefined): void {
    attempt('kept', () => {
      const folder = this.#folder
      const code = folder === undefined ? undefined : compile()
      if (folder === undefined || code === undefined || !makeTrustedFolder(folder)) return
      replacePrivateFile(join(folder, NAME), Buffer.concat([this.#seal(code), code]))
    })
  }

  #seal(code: Buffer): Buffer {
    return hash('sha256', Buffer.from(`${this.#origin} ${hash('sha256', code)}`), 'buffer')
  }
}

/** An operator who wants to know why a run takes longer can turn on the runner's debug log. */
function attempt<Result>(what: 'read' | 'kept', act: () => Result): Result | undefined {
  try {
    return act()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : 'unknown error'
    if (process.env['RUNNER_DEBUG'] === '1') process.stdout.write(`::debug::Compiled code was not ${what}: ${code}\n`)
    return undefined
  }
}
