import { hash } from 'node:crypto'
import { isAbsolute } from 'node:path'
import { compiledCodePath, ownFolderOf } from '../install/host/own-paths.ts'
import { readPrivateFile, replacePrivateFile } from './private-file.ts'
import { isTrustedFolder } from './trusted-folder.ts'

const DIGEST_BYTES = 32
/** Ten times what a whole deployment compiles. */
const MAX_BYTES = 16 * 1024 * 1024

/**
 * The bundle's code as Node.js has compiled it, in a file of `.hub-deploy/` of a project root. Whoever can write there
 * decides what runs, so it is read and written only where nobody but this user and root can. Never throws: without it,
 * a run takes longer.
 *
 * The file is not synced. Its digest tells a torn one, one of another bundle and one of another Node.js; the next run
 * that installs something replaces it.
 */
export class CompiledCode {
  readonly #own: string | undefined
  /** What the compiled code depends on. */
  #origin = ''

  constructor(projectRoot: string | undefined) {
    this.#own = projectRoot !== undefined && isAbsolute(projectRoot) ? ownFolderOf(projectRoot) : undefined
  }

  /** What was kept for exactly this bundle and this Node.js; undefined when there is nothing that can be trusted. */
  read(bundle: Buffer): Buffer | undefined {
    this.#origin = `${process.version} ${process.arch} ${hash('sha256', bundle)}`
    return attempt('read', () => {
      const file = this.#whereTrusted(own => readPrivateFile(compiledCodePath(own), MAX_BYTES))
      const code = file?.subarray(DIGEST_BYTES)
      return code !== undefined && this.#seal(code).equals(file?.subarray(0, DIGEST_BYTES) ?? code) ? code : undefined
    })
  }

  /** Replaces what was kept. */
  keep(compile: () => Buffer | undefined): void {
    attempt('kept', () =>
      this.#whereTrusted(own => {
        const code = compile()
        if (code !== undefined) replacePrivateFile(compiledCodePath(own), Buffer.concat([this.#seal(code), code]))
      }),
    )
  }

  #whereTrusted<Result>(act: (own: string) => Result): Result | undefined {
    return this.#own !== undefined && isTrustedFolder(this.#own) ? act(this.#own) : undefined
  }

  #seal(code: Buffer): Buffer {
    return hash('sha256', Buffer.from(`${this.#origin} ${hash('sha256', code)}`), 'buffer')
  }
}

/** An operator who wants to know why a run takes longer turns on the runner's debug log. */
function attempt<Result>(what: 'read' | 'kept', act: () => Result): Result | undefined {
  try {
    return act()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : 'unknown error'
    if (process.env['RUNNER_DEBUG'] === '1') process.stdout.write(`::debug::Compiled code was not ${what}: ${code}\n`)
    return undefined
  }
}
