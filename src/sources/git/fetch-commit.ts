import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type GitSource, isCommitId } from '../../core/content/external-source.ts'
import { basicCredentials, type GitTokens } from '../../core/content/git-tokens.ts'
import { ArchiveError, ArtifactError, AuthenticationError, type DeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { Log } from '../../core/log.ts'
import type { ChildEnd } from '../../install/files/child-process.ts'
import { allAuthorities } from '../../net/policy/trust.ts'
import type { Relay } from '../../net/relay/relay.ts'
import { boundedUrl, type GitSetting } from './git-settings.ts'
import type { HostGit } from './host-git.ts'

/** The only ref of our repository, whatever the name of the fetched ref is on the server. */
const FETCHED = 'refs/hub-deploy/fetched'

/** A server and the connection to it. */
export interface GitServer {
  readonly url: URL
  /** The only connection to the server. */
  readonly relay: Relay
  readonly tokens: GitTokens
  /** PEM; trusted in addition to the built-in authorities. */
  readonly ca: string | undefined
}

export interface CommitFetch {
  readonly git: HostGit
  readonly server: GitServer
  /** A private folder. */
  readonly folder: string
  readonly log: Log
}

/**
 * Fetches one commit without its history into an empty repository, and returns the commit's id. One connection both
 * resolves and fetches the ref, so the ref cannot move in between. Git itself checks that objects match their ids.
 * Throws ArtifactError `not_found`, `network`, `bad_response` or `artifact_unavailable`, AuthenticationError
 * `authentication_failed`, ArchiveError `archive_too_large`, and what `HostGit` throws.
 */
export async function fetchCommit(fetch: CommitFetch, { ref }: GitSource): Promise<string> {
  const { git } = fetch
  const format = ref.length === 64 && isCommitId(ref) ? 'sha256' : 'sha1'
  const made = await git.run({ args: ['init', '--quiet', '--bare', '--template=', `--object-format=${format}`] })
  if (!isDone(made))
    throw new ArtifactError('bad_response', 'git cannot create a repository on this host: try "git init" by hand.')
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
    args: ['fetch', ...options, '--', boundedUrl(fetch.server.url), refspec],
    settings: await connectionSettings(fetch),
  })
  if (!isDone(fetched)) throw explainRefusal(fetch, fetched)
  const commit = await git.line({ args: ['rev-parse', '--verify', '--end-of-options', `${FETCHED}^{commit}`] })
  if (commit === undefined) throw unusable(fetch.server, `its ${ref} is not a commit`)
  if (isCommitId(ref) && commit !== ref) throw unusable(fetch.server, `it sent ${commit} instead of ${ref}`)
  return commit
}

/** Settings for git's environment only, so that no argument and no file contains a token or a password. */
async function connectionSettings({ server, folder }: CommitFetch): Promise<GitSetting[]> {
  const { url, relay, tokens, ca } = server
  const token = tokens.get(url.host)
  const header = token === undefined ? [] : [[`http.${url.origin}/.extraHeader`, headerOf(token)] as const]
  const authorities = ca === undefined ? [] : [['http.sslCAInfo', writeAuthorities(folder, ca)] as const]
  return [['http.proxy', await relay.open()], ...header, ...authorities]
}

function headerOf(token: string): string {
  return `Authorization: Basic ${basicCredentials(token)}`
}

/** Writes the built-in authorities next to the operator's, because git uses only the authorities in this file. */
function writeAuthorities(folder: string, ca: string): string {
  const path = join(folder, 'authorities.pem')
  writeFileSync(path, allAuthorities(ca).join('\n'), { flag: 'wx', mode: 0o600 })
  return path
}

function isDone(end: ChildEnd): boolean {
  return end.kind === 'exited' && end.code === 0
}

/**
 * Matches lines in which git or curl reports that a limit was reached. The server must not be able to fake such a line,
 * so match only the lines that `ownLines` returns.
 */
const LIMIT =
  /^(?:error: \S+ died of signal 25|fatal: .*(?:File too large|Out of memory)|fatal: Out of memory.*|error: .*out of memory.*|fatal: mmap failed.*)$/i

/**
 * The beginnings of git's error lines, each with its error. With `LC_ALL=C`, git does not translate these lines. The
 * server causes each of these errors by its status or its data, so it gains nothing by faking a line.
 */
const REASONS: readonly (readonly [RegExp, (server: GitServer) => DeployError])[] = [
  [
    /^fatal: (?:Authentication failed for|could not read (?:Username|Password) for|unable to access .*returned error: 40[13]$)/i,
    denied,
  ],
  [
    /^(?:fatal: (?:couldn't find remote ref|repository '.*' not found|unable to access .*returned error: 404$)|fatal: remote error: (?:upload-pack: )?not our ref [0-9a-f]+$|error: Server does not allow request for unadvertised object)/i,
    missing,
  ],
  [
    /^fatal: unable to (?:access .*returned error: 30\d$|update url base from redirection)/i,
    server => unusable(server, 'it redirects, and redirects are never followed'),
  ],
  [
    /^(?:error|fatal): .*(?:fsck error|bad object|invalid index-pack|index-pack failed|pack has|corrupt)/i,
    server => unusable(server, 'it sent data that is damaged or that git refuses'),
  ],
  [
    /^(?:fatal: unable to access '|error: RPC failed; curl |fatal: early EOF|fetch-pack: unexpected disconnect)/i,
    broken,
  ],
]

/**
 * Builds the error for a failed fetch. The server's own words go only to the log, because the message goes to the hub.
 */
function explainRefusal({ git, server, log }: CommitFetch, end: ChildEnd): DeployError {
  const said = end.kind === 'not_started' ? end.error.message : end.output
  log.info(`git: ${cleanForeignText(said)}`)
  const { relay } = server
  if (end.kind === 'signalled' || git.hasReachedLimit() || relay.isOverflowing) return tooLarge(server)
  if (relay.isUnreached) return broken(server)
  if (ownLines(said).some(line => LIMIT.test(line))) return tooLarge(server)
  const explain = REASONS.find(([pattern]) => said.split('\n').some(line => pattern.test(line)))?.[1]
  return explain?.(server) ?? unserved(server)
}

/** Returns the lines before the first one that may quote the server: what the server says can contain line breaks. */
function ownLines(said: string): string[] {
  const lines = said.split('\n')
  const quoted = lines.findIndex(line => /^remote:|remote error|got '|unexpected|invalid server response/i.test(line))
  return quoted === -1 ? lines : lines.slice(0, quoted)
}

function unserved(server: GitServer): ArtifactError {
  return new ArtifactError(
    'artifact_unavailable',
    `${server.url.origin} did not serve ${pathOf(server)}: nothing was installed. The log has git's messages. Try again later, or ask the server's operator.`,
  )
}

function pathOf({ url }: GitServer): string {
  return cleanForeignText(url.pathname, 200)
}

function tooLarge(server: GitServer): ArchiveError {
  return new ArchiveError(
    'archive_too_large',
    `The repository ${server.url.origin}${pathOf(server)} is too large: it sends more bytes than max-artifact-bytes leaves for it, or git needs more memory for it than this host or this action allows. Nothing was installed. Raise max-artifact-bytes, or have the publisher put the part into the project.`,
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
    `${server.url.origin} has no repository ${pathOf(server)} with the ref that the manifest names, or hides the repository from this host: nothing was installed. Check sources-git-tokens, or ask the publisher.`,
  )
}

function broken(server: GitServer): ArtifactError {
  return new ArtifactError(
    'network',
    `The connection to ${server.url.origin} could not be made, or broke: nothing was installed. Check the network, any proxy and ca-file. The log has git's messages.`,
  )
}

function unusable(server: GitServer, found: string): ArtifactError {
  return new ArtifactError(
    'bad_response',
    `${server.url.origin} cannot be used: ${cleanForeignText(found)}. Nothing was installed. Ask the publisher.`,
  )
}
