import { mkdirSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import { type GitSource, isCommitId } from '../../core/content/external-source.ts'
import { ArchiveError, ArtifactError, DeploymentError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { monotonicMs } from '../../core/monotonic.ts'
import { OWN_INODES, requireSpace } from '../../install/files/space.ts'
import type { ExtractedTree } from '../../install/files/trees/extracted-tree.ts'
import { removeTree } from '../../install/files/trees/remove-tree.ts'
import { Relay } from '../../net/relay/relay.ts'
import type { SourceRequest, SourceTools } from '../source-request.ts'
import { fetchCommit } from './fetch-commit.ts'
import { HostGit } from './host-git.ts'
import { readTree } from './read-tree.ts'

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
 * which is private and empty at first. Nothing in the repository is run or interpreted. Throws what `fetchCommit`,
 * `readTree`, `HostGit` and the address rules throw. Also throws ArtifactError `invalid_manifest` for a subdirectory
 * that the tree does not have, ArtifactError `unpinned_source` for a tree that its digest does not cover, and
 * DeploymentError `disk_full`.
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
