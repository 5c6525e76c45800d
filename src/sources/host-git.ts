import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { ArtifactError, DeploymentError } from '../core/errors.ts'
import { monotonicMs } from '../core/log.ts'
import { allowedEnvironment, type ChildEnd, readChild, runChild } from '../install/files/child-process.ts'
import { pathExistsSync } from '../install/files/walk.ts'

/**
 * The memory limit of each process, enough for an unpacked pack. The process that talks to the server has a lower limit
 * (git-settings.ts).
 */
const MEMORY_KIB = 512 * 1024
/** The unit of `ulimit -f` in every POSIX shell. */
const BLOCK_BYTES = 512
/** The first version with `http.curloptResolve` and `GIT_CONFIG_COUNT`; an older git silently ignores one or both. */
const LEAST_VERSION = [2, 37] as const

/** The exit code of the shell if this host does not know a limit or does not let this process set it. */
const NO_LIMITS = 121

/**
 * Sets limits that git itself does not have. A lower limit of the host is accepted. The text that the shell runs is
 * constant, and `"$@"` passes the arguments as they are. When this process ends, for any reason, descriptor 3 closes,
 * and the shell's process group, which includes git, is killed.
 */
const LIMITED = `
limit() { ulimit "$1" "$2" 2>/dev/null || { own=$(ulimit "$1") && [ "$own" -le "$2" ]; } 2>/dev/null || exit ${NO_LIMITS}; }
limit -c 0; limit -f "$1"; limit -v "$2"; limit -t "$3"; shift 3
{ read -r _ <&3; kill -9 -$$; } </dev/null >/dev/null 2>&1 &
exec git "$@" 3<&-`

/** Our folder for git, and git's limits in it. */
interface GitLimits {
  /** A private folder with git's repository and home. */
  readonly folder: string
  /** The limit for the received bytes, and therefore for any file that git writes. */
  readonly maxBytes: number
  /** The deadline for all commands together, in milliseconds of the monotonic clock. */
  readonly endsAt: number
  readonly signal: AbortSignal
}

interface GitCall {
  readonly args: readonly [string, ...string[]]
  readonly settings?: readonly GitSetting[]
  /** A descriptor that becomes the command's stdin. */
  readonly input?: number
}

/** The host's git, with our configuration only, in a repository that is empty at first. */
export class HostGit {
  readonly repository: string
  readonly #limits: GitLimits

  constructor(limits: GitLimits) {
    this.repository = join(limits.folder, 'repository')
    this.#limits = limits
  }

  /**
   * Throws DeploymentError `source_not_supported` if git does not run on this host, if git is older than
   * `LEAST_VERSION`, or if this host cannot set the limits.
   */
  async verifyVersion(): Promise<void> {
    const end = await this.run({ args: ['version'] })
    if (end.kind === 'exited' && end.code === NO_LIMITS) throw noLimits()
    const found = end.kind === 'exited' && end.code === 0 ? end.stdout.trim() : 'none'
    const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(found)?.slice(1) ?? []).map(Number)
    const [leastMajor, leastMinor] = LEAST_VERSION
    if (major > leastMajor || (major === leastMajor && minor >= leastMinor)) return
    throw new DeploymentError(
      'source_not_supported',
      `A part of the project comes from a git repository, so this host needs git ${LEAST_VERSION.join('.')} or newer on its PATH, but found ${found}: nothing was installed. Install or update git.`,
    )
  }

  /**
   * Runs a command and returns how it ended, with at most 2 KiB of its output. Throws ArtifactError `timeout` once the
   * time is up, and the signal's reason once the signal is aborted.
   */
  async run(call: GitCall): Promise<ChildEnd> {
    const end = await runChild(this.#request(call))
    if (end.kind === 'timed_out') throw this.#late()
    return end
  }

  /** Returns the one line that a command prints; undefined if the command fails. */
  async line(call: GitCall): Promise<string | undefined> {
    const end = await this.run(call)
    return end.kind === 'exited' && end.code === 0 ? end.stdout.trim() : undefined
  }

  /** Passes everything that a command prints to `consume`. Throws ArtifactError `bad_response` if the command fails. */
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

  /**
   * True if a file has reached its limit: in that case, the system killed the process that wrote the file, without a
   * message.
   */
  hasReachedLimit(): boolean {
    const packs = join(this.repository, 'objects', 'pack')
    const names = pathExistsSync(packs) ? readdirSync(packs) : []
    return names.some(name => statSync(join(packs, name)).size >= this.#limits.maxBytes)
  }

  #request({ args, settings }: GitCall) {
    const { folder, maxBytes, endsAt, signal } = this.#limits
    const timeoutMs = Math.max(1, endsAt - monotonicMs())
    const limits = [Math.ceil(maxBytes / BLOCK_BYTES), MEMORY_KIB, Math.ceil(timeoutMs / 1000) + 1]
    return {
      command: ['/bin/sh', '-c', LIMITED, 'git', ...limits.map(String), ...args] as [string, ...string[]],
      env: gitEnvironment({ home: folder, repository: this.repository }, settings),
      cwd: folder,
      timeoutMs,
      signal,
      abortGraceMs: 1000,
      isTethered: true as const,
    }
  }

  #late(): ArtifactError {
    return new ArtifactError(
      'timeout',
      'Fetching a git repository did not end within timeout-minutes, the limit for all sources together: nothing was installed. Raise timeout-minutes if the repositories are meant to be that large, or ask the publisher.',
    )
  }
}

function noLimits(): DeploymentError {
  return new DeploymentError(
    'source_not_supported',
    'A part of the project comes from a git repository, but this host cannot limit the memory, files and time that git uses (the shell\'s "ulimit" failed): nothing was installed. Deploy the project on Linux, or have the publisher put the part into the project.',
  )
}

/** A line of git's configuration. */
export type GitSetting = readonly [key: string, value: string]

const HELPER = 'bounded'
/**
 * The memory limit for the process that talks to the server. That process holds the whole list of refs, which can be
 * much larger in memory than on the wire. Real lists have a few MiB.
 */
const HELPER_MEMORY_KIB = 192 * 1024

/** Returns the URL that makes git fetch through the helper that has this memory limit. */
export function boundedUrl({ href }: URL): string {
  return `${HELPER}::${href}`
}

/**
 * Git's behavior, whatever a repository or its server asks for: https only, no redirects, no programs but git's own.
 * Nothing from a repository runs here, and git checks all received objects while it unpacks them.
 */
const SETTINGS: readonly GitSetting[] = [
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.attributesFile', '/dev/null'],
  ['core.askPass', ''],
  ['core.logAllRefUpdates', 'false'],
  ['core.bigFileThreshold', '16m'],
  ['credential.helper', ''],
  ['protocol.allow', 'never'],
  ['protocol.https.allow', 'always'],
  // The remote helper `HELPER` is git's own helper for https, but with less memory than the rest of git.
  [`protocol.${HELPER}.allow`, 'always'],
  [`alias.remote-${HELPER}`, `!ulimit -v ${HELPER_MEMORY_KIB} && exec git remote-https`],
  ['http.proxyAuthMethod', 'basic'],
  ['core.deltaBaseCacheLimit', '32m'],
  ['core.packedGitWindowSize', '32m'],
  ['core.packedGitLimit', '64m'],
  ['transfer.fsckObjects', 'true'],
  ['transfer.unpackLimit', '1'],
  ['transfer.bundleURI', 'false'],
  ['transfer.credentialsInUrl', 'die'],
  ['fetch.recurseSubmodules', 'false'],
  ['fetch.writeCommitGraph', 'false'],
  ['submodule.recurse', 'false'],
  ['pack.threads', '1'],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
  ['http.followRedirects', 'false'],
  ['http.sslVerify', 'true'],
  ['http.lowSpeedLimit', '1000'],
  ['http.lowSpeedTime', '60'],
]

/** Builds an environment with all of git's settings, so that no argument and no file has to contain a setting. */
function gitEnvironment(
  { home, repository }: { readonly home: string; readonly repository: string },
  settings: readonly GitSetting[] = [],
): Record<string, string> {
  const all = [...SETTINGS, ...settings]
  const numbered = all.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ])
  return allowedEnvironment({
    ...{ HOME: home, XDG_CONFIG_HOME: home, LANG: 'C', LC_ALL: 'C' },
    ...{
      GIT_DIR: repository,
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_SYSTEM: '/dev/null',
      GIT_CONFIG_GLOBAL: '/dev/null',
    },
    ...{ GIT_ATTR_NOSYSTEM: '1', GIT_NO_REPLACE_OBJECTS: '1', GIT_NO_LAZY_FETCH: '1', GIT_OPTIONAL_LOCKS: '0' },
    ...{ GIT_ALLOW_PROTOCOL: `https:${HELPER}`, GIT_TERMINAL_PROMPT: '0', GIT_ASKPASS: '', SSH_ASKPASS: '' },
    GIT_CONFIG_COUNT: String(all.length),
    ...Object.fromEntries(numbered),
  })
}
