import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { ArtifactError, DeploymentError } from '../../core/errors.ts'
import { type ChildEnd, readChild, runChild } from '../../install/files/child-process.ts'
import { pathExistsSync } from '../../install/files/tree-walk.ts'
import { type GitSetting, gitEnvironment } from './git-settings.ts'

const MIB = 1024 * 1024
/** What git needs besides the bytes that arrive: its libraries, and the largest object that it keeps whole. */
const SPARE_MEMORY_BYTES = 2048 * MIB
/** The unit of `ulimit -f` in every POSIX shell. */
const BLOCK_BYTES = 512
/** `http.curloptResolve` and `GIT_CONFIG_COUNT`; an older git would ignore them without a word. */
const LEAST_VERSION = [2, 37] as const

/** Limits that git itself does not have. What the shell runs is constant; `"$@"` passes arguments as they are. */
const LIMITED = 'ulimit -c 0; ulimit -f "$1"; ulimit -v "$2"; shift 2; exec git "$@"'

/** A folder of ours, and what git may use there. */
export interface GitLimits {
  /** Private. Git's repository and home are in it. */
  readonly folder: string
  /** Of what arrives, and so of any file that git writes. */
  readonly maxBytes: number
  /** Of every command together. */
  readonly endsAt: number
  readonly signal: AbortSignal
}

export interface GitCall {
  readonly args: readonly [string, ...string[]]
  readonly settings?: readonly GitSetting[]
  /** A descriptor that becomes its stdin. */
  readonly input?: number
}

/** The host's git, which knows no other configuration than ours, in a repository that holds nothing yet. */
export class HostGit {
  readonly repository: string
  readonly #limits: GitLimits

  constructor(limits: GitLimits) {
    this.repository = join(limits.folder, 'repository')
    this.#limits = limits
  }

  /** Throws DeploymentError `source_not_supported` when this host has no git, or one that does not know these limits. */
  async verifyVersion(): Promise<void> {
    const end = await this.run({ args: ['version'] })
    const found = end.kind === 'exited' && end.code === 0 ? end.stdout.trim() : 'none'
    const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(found)?.slice(1) ?? []).map(Number)
    const [leastMajor, leastMinor] = LEAST_VERSION
    if (major > leastMajor || (major === leastMajor && minor >= leastMinor)) return
    throw new DeploymentError(
      'source_not_supported',
      `A part of the project comes from a git repository, for which this host needs git ${LEAST_VERSION.join('.')} or newer on its PATH, found ${found}: nothing was installed. Install it.`,
    )
  }

  /** How a command ended; its output is cut to 2 KiB. Throws ArtifactError `timeout`, and the signal's reason. */
  async run(call: GitCall): Promise<ChildEnd> {
    const end = await runChild(this.#request(call))
    if (end.kind === 'timed_out') throw this.#late()
    return end
  }

  /** The one line that a command prints; undefined when it fails. Throws as `run` does. */
  async line(call: GitCall): Promise<string | undefined> {
    const end = await this.run(call)
    return end.kind === 'exited' && end.code === 0 ? end.stdout.trim() : undefined
  }

  /** Hands all that a command prints to `consume`. Throws ArtifactError `bad_response` when it fails, and as `run` does. */
  async read<Read>(call: GitCall, consume: (stdout: AsyncIterable<Buffer>) => Promise<Read>): Promise<Read> {
    const input = call.input === undefined ? {} : { input: call.input }
    const { end, read } = await readChild({ ...this.#request(call), ...input }, consume)
    if (end.kind === 'timed_out') throw this.#late()
    if (end.kind === 'exited' && end.code === 0) return read as Read
    throw new ArtifactError(
      'bad_response',
      `git ${call.args[0]} cannot read the repository that it has just fetched: nothing was installed. Run again; if that does not help, ask the publisher.`,
    )
  }

  /** Whether a file has become as large as it may: the process that wrote it was then killed without a word. */
  hasReachedLimit(): boolean {
    const packs = join(this.repository, 'objects', 'pack')
    const names = pathExistsSync(packs) ? readdirSync(packs) : []
    return names.some(name => statSync(join(packs, name)).size >= this.#limits.maxBytes)
  }

  #request({ args, settings }: GitCall) {
    const { folder, maxBytes, endsAt, signal } = this.#limits
    const blocks = Math.ceil(maxBytes / BLOCK_BYTES)
    const kilobytes = Math.ceil((maxBytes + SPARE_MEMORY_BYTES) / 1024)
    const limited = ['/bin/sh', '-c', LIMITED, 'git', String(blocks), String(kilobytes)] as const
    return {
      command: [...limited, ...args] as [string, ...string[]],
      env: gitEnvironment({ home: folder, repository: this.repository }, settings),
      cwd: folder,
      timeoutMs: Math.max(1, endsAt - performance.now()),
      signal,
      abortGraceMs: 1000,
    }
  }

  #late(): ArtifactError {
    return new ArtifactError(
      'timeout',
      'Fetching a git repository took longer than timeout-minutes allows: nothing was installed. Raise it if the repository is meant to be that large, or ask the publisher.',
    )
  }
}
