import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { GitSource } from '../../core/content/external-source.ts'
import { ArtifactError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { ExtractedTree } from '../../install/files/extracted-tree.ts'
import { removeTree } from '../../install/files/remove-tree.ts'
import { Relay } from '../../net/relay.ts'
import type { SourceRequest, SourceTools } from '../source-request.ts'
import { fetchCommit } from './fetch-commit.ts'
import { HostGit } from './host-git.ts'
import { readTree } from './read-tree.ts'

/** A tree that was fetched, and where it is. */
export interface GitTree {
  readonly staged: string
  readonly tree: ExtractedTree
  readonly commit: string
}

/**
 * Fetches the tree of a commit, or a directory of it, below `folder`, which is private and empty, with the host's git.
 * Nothing in the repository is run or interpreted. Throws what `fetchCommit`, `readTree` and the address rules throw,
 * and ArtifactError `invalid_manifest` for a subdirectory that the tree does not have.
 */
export async function fetchGitTree(
  { request, tools }: { request: SourceRequest; tools: SourceTools },
  source: GitSource,
  folder: string,
): Promise<GitTree> {
  const { signal, log, wires } = tools
  const endsAt = performance.now() + request.downloadTimeoutMs
  const work = join(folder, 'git')
  mkdirSync(work, { mode: 0o700 })
  const git = new HostGit({ folder: work, maxBytes: request.maxArtifactBytes, endsAt, signal })
  await git.verifyVersion()
  const url = new URL(source.url)
  const route = await wires.wire.routeForChild(url, new URL(request.hubUrl))
  const relay = new Relay({ url, route, maxBytes: request.maxArtifactBytes })
  const server = { url, relay, tokens: request.gitTokens, ca: request.ca }
  const commit = await fetchCommit({ git, server, folder: work, log }, source).finally(() => relay.close())
  const tree = await findTree(git, commit, source)
  const staged = join(folder, 'tree')
  const reading = { git, folder: work, target: staged, limits: request.extraction, signal }
  const found = await readTree(reading, tree)
  await removeTree(work)
  return { staged, tree: found, commit }
}

/** A path after the colon is never an option, and leads through no symlink. */
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
    `The project's manifest.json names the directory ${cleanForeignText(subdirectory, 200)} of ${url} at ${ref}, which has none of that name: nothing was installed. The publisher must correct its source and seal the project again.`,
  )
}
