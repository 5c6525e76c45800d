import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { getCACertificates } from 'node:tls'
import { type GitSource, isCommitId } from '../../core/content/external-source.ts'
import { basicCredentials, type GitTokens } from '../../core/content/git-tokens.ts'
import { ArchiveError, ArtifactError, AuthenticationError, type DeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { Log } from '../../core/log.ts'
import type { ChildEnd } from '../../install/files/child-process.ts'
import type { ChildRoute } from '../../net/route-for-child.ts'
import type { GitSetting } from './git-settings.ts'
import type { HostGit } from './host-git.ts'

/** The only ref of the repository, wherever the server keeps it. */
const FETCHED = 'refs/hub-deploy/fetched'

/** A server, and how to reach it. */
export interface GitServer {
  readonly url: URL
  readonly route: ChildRoute
  readonly tokens: GitTokens
  /** PEM; trusted in addition to the built-in authorities. */
  readonly ca: string | undefined
}

export interface CommitFetch {
  readonly git: HostGit
  readonly server: GitServer
  /** Private. */
  readonly folder: string
  readonly log: Log
}

/**
 * Fetches one commit without its history into an empty repository, and returns its id. One connection both resolves the
 * ref and fetches it, so it cannot move in between; git itself checks that objects are what their ids say. Throws
 * ArtifactError `not_found`, `network`, `bad_response` or `artifact_unavailable`, AuthenticationError
 * `authentication_failed`, ArchiveError `archive_too_large`, and what `HostGit` throws.
 */
export async function fetchCommit(fetch: CommitFetch, { ref }: GitSource): Promise<string> {
  const { git } = fetch
  const format = ref.length === 64 && isCommitId(ref) ? 'sha256' : 'sha1'
  const made = await git.run({ args: ['init', '--quiet', '--bare', '--template=', `--object-format=${format}`] })
  if (!isDone(made))
    throw new ArtifactError('bad_response', 'git cannot make a repository on this host: try it by hand.')
  const options = [
    '--quiet',
    '--depth=1',
    '--no-tags',
    '--no-recurse-submodules',
    '--no-write-fetch-head',
    '--no-auto-gc',
  ]
  const refspec = `+${ref}:${FETCHED}`
  const fetched = await git.run({
    args: ['fetch', ...options, '--', fetch.server.url.href, refspec],
    settings: connectionSettings(fetch),
  })
  if (!isDone(fetched)) throw explainRefusal(fetch, fetched)
  const commit = await git.line({ args: ['rev-parse', '--verify', '--end-of-options', `${FETCHED}^{commit}`] })
  if (commit === undefined) throw unusable(fetch.server, `what it calls ${ref} is not a commit`)
  if (isCommitId(ref) && commit !== ref) throw unusable(fetch.server, `it sent ${commit} instead of ${ref}`)
  return commit
}

/** They are in git's environment only: neither a token nor a proxy's password is in an argument or a file. */
function connectionSettings({ server, folder }: CommitFetch): GitSetting[] {
  const { url, route, tokens, ca } = server
  const token = tokens.get(url.host)
  const header = token === undefined ? [] : [[`http.${url.origin}/.extraHeader`, headerOf(token)] as const]
  const authorities = ca === undefined ? [] : [['http.sslCAInfo', writeAuthorities(folder, ca)] as const]
  return [...routeSettings(url, route), ...header, ...authorities]
}

function headerOf(token: string): string {
  return `Authorization: Basic ${basicCredentials(token)}`
}

/** Curl connects to the addresses that were judged, and asks no name server: the name could mean another one by now. */
function routeSettings(url: URL, route: ChildRoute): GitSetting[] {
  if ('proxy' in route) return [['http.proxy', route.proxy]]
  const addresses = route.addresses.map(address => (address.includes(':') ? `[${address}]` : address))
  const pinned = `${url.hostname}:${url.port || '443'}:${addresses.join(',')}`
  return [
    ['http.proxy', ''],
    ['http.curloptResolve', pinned],
  ]
}

/** Git replaces the built-in authorities by those of the file. */
function writeAuthorities(folder: string, ca: string): string {
  const path = join(folder, 'authorities.pem')
  writeFileSync(path, [...getCACertificates('default'), ca].join('\n'), { flag: 'wx', mode: 0o600 })
  return path
}

function isDone(end: ChildEnd): boolean {
  return end.kind === 'exited' && end.code === 0
}

/** What git says in its own words, which it does not change in `LC_ALL=C`, and what it means. */
const REASONS: readonly (readonly [RegExp, (server: GitServer) => DeployError])[] = [
  [/signal 25|File too large|File size limit|out of memory|mmap failed/i, tooLarge],
  [/Authentication failed|could not read (?:Username|Password)|returned error: 40[13]/i, denied],
  [/couldn't find remote ref|not our ref|repository .* not found|returned error: 404/i, missing],
  [/redirect|returned error: 30\d/i, server => unusable(server, 'it redirects, which is never followed')],
  [
    /fsck error|bad object|invalid index-pack|index-pack failed|pack has|corrupt/i,
    server => unusable(server, 'what it sent is damaged or not what git accepts'),
  ],
  [
    /certificate|Could not resolve|Failed to connect|Couldn't connect|SSL|timed out|too slow|Connection|early EOF/i,
    broken,
  ],
]

/** The server's own words go to the log only: the hub reads the message. */
function explainRefusal({ git, server, log }: CommitFetch, end: ChildEnd): DeployError {
  const said = end.kind === 'not_started' ? end.error.message : end.output
  log.info(`git: ${cleanForeignText(said)}`)
  if (end.kind === 'signalled' || git.hasReachedLimit()) return tooLarge(server)
  const explain = REASONS.find(([pattern]) => pattern.test(said))?.[1]
  return (
    explain?.(server) ??
    new ArtifactError(
      'artifact_unavailable',
      `${server.url.origin} did not serve ${pathOf(server)}: nothing was installed. The log has what git says; try again later, or ask the server's operator.`,
    )
  )
}

function pathOf({ url }: GitServer): string {
  return cleanForeignText(url.pathname, 200)
}

function tooLarge(server: GitServer): ArchiveError {
  return new ArchiveError(
    'archive_too_large',
    `The repository ${server.url.origin}${pathOf(server)} sends more than max-artifact-bytes allows, or needs more memory than that to unpack: nothing was installed. Raise max-artifact-bytes if it is meant to be that large.`,
  )
}

function denied(server: GitServer): AuthenticationError {
  const given = server.tokens.has(server.url.host) ? 'Check its token in' : 'It may need a token: add one to'
  return new AuthenticationError(
    'authentication_failed',
    `${server.url.origin} refused access to ${pathOf(server)}: nothing was installed. ${given} sources-git-tokens (${server.url.host}=...).`,
  )
}

function missing(server: GitServer): ArtifactError {
  return new ArtifactError(
    'not_found',
    `${server.url.origin} has no repository ${pathOf(server)} with the commit that the manifest names, or hides it from this host: nothing was installed. Check sources-git-tokens, or ask the publisher.`,
  )
}

function broken(server: GitServer): ArtifactError {
  return new ArtifactError(
    'network',
    `The connection to ${server.url.origin} could not be made, or broke: nothing was installed. Check the network, any proxy and ca-file; the log has what git says.`,
  )
}

function unusable(server: GitServer, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${server.url.origin} cannot be used: ${cleanForeignText(found)}. Nothing was installed; ask the publisher.`,
  )
}
