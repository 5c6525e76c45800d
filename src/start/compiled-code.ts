import { hash } from 'node:crypto'
import { join } from 'node:path'
import { readPrivateFile, replacePrivateFile } from './private-file.ts'
import { isTrustedFolder, makeTrustedFolder } from './trusted-folder.ts'

const NAME = 'compiled'
/**
 * The bytes before the code: a digest and the list of runs. Their total size must be a multiple of 8 so that V8 can use
 * the code in place.
 */
const DIGEST_BYTES = 32
const RUNS_BYTES = 96
const HEADER_BYTES = DIGEST_BYTES + RUNS_BYTES
/** Ten times the code that a complete deployment compiles. */
const MAX_BYTES = 16 * 1024 * 1024

/**
 * The bundle's code as Node.js has compiled it, in one file of this user's cache. A process that can write that file
 * decides what runs, so the file is read and written only in a folder that only this user and root can change. Never
 * throws: without the file, a run merely takes longer.
 *
 * Different runs need different functions. For example, an update also compares and moves the old tree. The file
 * therefore lists the kinds of runs that have contributed to its code, and the first run of another kind adds the
 * functions that it has compiled.
 *
 * The file is not synced. Its digest exposes a torn file, and a file for another bundle or another Node.js. The next
 * run that keeps its code replaces such a file.
 */
export class CompiledCode {
  readonly #folder: string | undefined
  /** The Node.js version, the architecture and the bundle that the compiled code is for. */
  #origin = ''
  /** The kinds of runs that have contributed; undefined if no code is kept. */
  #runs: readonly string[] | undefined

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
      if (file === undefined || file.length < HEADER_BYTES) return undefined
      const [runs, code] = [file.subarray(DIGEST_BYTES, HEADER_BYTES), file.subarray(HEADER_BYTES)]
      if (!this.#seal(runs, code).equals(file.subarray(0, DIGEST_BYTES))) return undefined
      const list = runs.toString('latin1').trimEnd()
      this.#runs = list === '' ? [] : list.split(',')
      return code
    })
  }

  /** Forgets the code that was read: Node.js has refused it. */
  discard(): void {
    this.#runs = undefined
  }

  /**
   * Replaces the kept code, unless a run of the same kind has already contributed to it or the list of kinds has no
   * room. A run without a kind may have lost code that it compiled. Its code is kept only if no other code is kept, and
   * the next run with a kind replaces it.
   */
  keep(run: string | undefined, compile: () => Buffer): void {
    attempt('kept', () => {
      const folder = this.#folder
      if (folder === undefined || !this.#lacks(run) || !makeTrustedFolder(folder)) return
      const list = [...(this.#runs ?? []), run].filter(kind => kind !== undefined).join(',')
      const runs = Buffer.from(list.padEnd(RUNS_BYTES), 'latin1')
      if (runs.length > RUNS_BYTES) return
      const code = compile()
      replacePrivateFile(join(folder, NAME), Buffer.concat([this.#seal(runs, code), runs, code]))
    })
  }

  #lacks(run: string | undefined): boolean {
    return this.#runs === undefined || (run !== undefined && !this.#runs.includes(run))
  }

  #seal(runs: Buffer, code: Buffer): Buffer {
    const text = `${this.#origin} ${runs.toString('latin1')} ${hash('sha256', code)}`
    return hash('sha256', Buffer.from(text), 'buffer')
  }
}

/**
 * Returns undefined if `act` throws. If the runner's debug log is on, it then says why this run or the next one takes
 * longer.
 */
function attempt<Result>(deed: 'read' | 'kept', act: () => Result): Result | undefined {
  try {
    return act()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : 'unknown error'
    if (process.env['RUNNER_DEBUG'] === '1') process.stdout.write(`::debug::Compiled code was not ${deed}: ${code}\n`)
    return undefined
  }
}
