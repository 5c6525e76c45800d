import { mkdirSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { basicCredentials, type GitSource, type GitTokens, isCommitId } from '../core/content/source.ts'
import { ArchiveError, ArtifactError, AuthenticationError, type DeployError, DeploymentError } from '../core/errors.ts'
import { type Log, monotonicMs } from '../core/log.ts'
import { cleanForeignText } from '../core/text.ts'
import type { ChildEnd } from '../install/files/child-process.ts'
import type { ExtractedTree } from '../install/files/extracted-tree.ts'
import { removeTree } from '../install/files/remove-tree.ts'
import { OWN_INODES, requireSpace } from '../install/files/space.ts'
import { allAuthorities } from '../net/policy.ts'
import { Relay } from '../net/relay.ts'
import { readTree } from './git-tree.ts'
import { boundedUrl, type GitSetting, HostGit } from './host-git.ts'
import type { SourceRequest, SourceTools } from './request.ts'

/** A fetched tree, its folder, and the commit that it comes from. */
export interface GitTree {
  readonly staged: string
  readonly tree: ExtractedTree
  readonly commit: string
  /** The number of bytes that the server sent. */
  readonly received: number
}

/** The space to leave for git's own files, and for everything else on this file system. */
const SPARE_BYTES = 64 * 1024 * 1024

/**
 * Uses the host's git to fetch the tree of a commit, or a directory of that tree. The tree is written below `folder`,
 * which is private and empty at first. Nothing in the repository is run or interpreted. Throws ArtifactError
 * `invalid_manifest` for a subdirectory that the tree does not have, ArtifactError `unpinned_source` for a tree that
 * its digest does not cover, and DeploymentError `disk_full`.
 */
export async function fetchGitTree(
  { request, tools }: { request: SourceRequest; tools: SourceTools },
  source: GitSource,
  folder: string,
): Promise<GitTree> {
  const { signal, log, wires } = tools
  const endsAt = monotonicMs() + request.downloadTimeoutMs
  const work = join(folder, 'git')
  mkdirSync(work, { mode: 0o700 })
  const maxBytes = Math.min(request.maxArtifactBytes, roomIn(folder))
  const git = new HostGit({ folder: work, maxBytes, endsAt, signal })
  await git.verifyVersion()
  const url = new URL(source.url)
  const route = await wires.wire.routeForChild(url, new URL(request.hubUrl))
  const relay = new Relay({ url, route, maxBytes })
  const server = { url, relay, tokens: request.gitTokens, ca: request.ca }
  const commit = await fetchCommit({ git, server, folder: work, log }, source)
    .catch(error => {
      throw error instanceof ArchiveError && maxBytes < request.maxArtifactBytes ? noRoom(source, folder) : error
    })
    .finally(() => relay.close())
  const tree = await findTree(git, commit, source)
  const staged = join(folder, 'tree')
  const reading = { git, folder: work, target: staged, limits: request.extraction, signal }
  const found = await readTree(reading, tree)
  if (!isCommitId(source.ref)) verifyCovered(source, commit, found)
  await removeTree(work)
  return { staged, tree: found, commit, received: relay.received }
}

/**
 * Returns the number of bytes that the folder has room for in addition to SPARE_BYTES. This number limits the arriving
 * bytes, because git does not announce a size. Throws DeploymentError `disk_full` if there is too little space for
 * git's own files.
 */
function roomIn(folder: string): number {
  requireSpace(folder, { sizes: [SPARE_BYTES], inodes: OWN_INODES })
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize - SPARE_BYTES
}

function noRoom({ url }: GitSource, folder: string): DeploymentError {
  return new DeploymentError(
    'disk_full',
    `${url} sends more than the file system of ${folder} has room for, or needs more memory than git may use: nothing was installed. Free some space there (see df) and run again.`,
  )
}

/**
 * Without a commit id, only the digest identifies the tree, and it covers neither the modes of files nor symlinks that
 * lead to no file. Throws ArtifactError `unpinned_source` for an executable file and for such a symlink.
 */
function verifyCovered({ url, ref }: GitSource, commit: string, { files, symlinks }: ExtractedTree): void {
  const link = symlinks.find(({ file }) => file === null)
  const program = files.find(({ mode }) => mode !== 0o644)
  const found = link
    ? `the symlink ${link.path}, which leads to no file`
    : program && `the mode of ${program.path}, which is executable`
  if (found === undefined) return
  throw new ArtifactError(
    'unpinned_source',
    `The project's manifest.json names ${url} at ${ref} with a sha256. This digest does not cover ${cleanForeignText(found, 200)}: nothing was installed. The publisher must name the commit id, now ${commit}, as the source's ref and seal the project again.`,
  )
}

/**
 * Finds the tree to read. The subdirectory comes after a colon, so git never mistakes it for an option. Git follows no
 * symlink on the way to the subdirectory.
 */
async function findTree(git: HostGit, commit: string, source: GitSource): Promise<string> {
  const { subdirectory } = source
  const object = subdirectory === undefined ? commit : await resolve(git, `${commit}:${subdirectory}`)
  const tree = object && (await resolve(git, `${object}^{tree}`))
  if (tree === undefined) throw noDirectory(source)
  return tree
}

async function resolve(git: HostGit, revision: string): Promise<string | undefined> {
  return await git.line({ args: ['rev-parse', '--verify', '--end-of-options', revision] })
}

function noDirectory({ url, ref, subdirectory = '' }: GitSource): ArtifactError {
  return new ArtifactError(
    'invalid_manifest',
    `The project's manifest.json names the directory ${cleanForeignText(subdirectory, 200)} of ${url} at ${ref}, which contains no such directory: nothing was installed. The publisher must correct the source of the part and seal the project again.`,
  )
}

/** The only ref of our repository, whatever the name of the fetched ref is on the server. */
const FETCHED = 'refs/hub-deploy/fetched'

/** A server and the connection to it. */
interface GitServer {
  readonly url: URL
  /** The only connection to the server. */
  readonly relay: Relay
  readonly tokens: GitTokens
  /** PEM; trusted in addition to the built-in authorities. */
  readonly ca: string | undefined
}

interface CommitFetch {
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
 * `authentication_failed`, or ArchiveError `archive_too_large`.
 */
async function fetchCommit(fetch: CommitFetch, { ref }: GitSource): Promise<string> {
  const { git } = fetch
  const format = ref.length === 64 && isCommitId(ref) ? 'sha256' : 'sha1'
  const made = await git.run({ args: ['init', '--quiet', '--bare', '--template=', `--object-format=${format}`] })
  if (!hasSucceeded(made))
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
  if (!hasSucceeded(fetched)) throw explainRefusal(fetch, fetched)
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

function hasSucceeded(end: ChildEnd): boolean {
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
