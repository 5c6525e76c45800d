import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import { UsageError } from '../../hub/errors.ts'

/** This repository, as a workflow names it. */
export interface ActionSource {
  /** `OWNER/NAME` on GitHub. */
  readonly repository: string
  /** The full SHA of a commit. */
  readonly commit: string
}

const CHECKOUT = join(import.meta.dirname, '../..')
const GITHUB_REMOTE =
  /^(?:https:\/\/(?:[^/@]*@)?github\.com\/|(?:ssh:\/\/)?git@github\.com[:/])([\w.-]+\/[\w.-]+?)(?:\.git)?\/?$/

/** Throws UsageError if a workflow could not name this checkout: it has no remote on GitHub, or no commit. */
export function readActionSource(): ActionSource {
  const url = git(CHECKOUT, 'remote', 'get-url', 'origin')
  const repository = repositoryIn(url)
  const commit = git(CHECKOUT, 'rev-parse', 'HEAD')
  if (repository === undefined || commit === undefined)
    throw new UsageError(
      `${CHECKOUT} ${url === undefined ? 'has no git remote "origin"' : 'has a git remote "origin" that is not on GitHub'}, so a workflow could not name this action: clone it from GitHub, or run "git remote add origin https://github.com/OWNER/NAME" with the repository that has it.`,
    )
  return { repository, commit }
}

/** Returns the repository on GitHub, `OWNER/NAME`, to which a folder's commits go; undefined if there is none. */
export function readRepository(folder: string): string | undefined {
  return repositoryIn(git(folder, 'remote', 'get-url', 'origin'))
}

function repositoryIn(url: string | undefined): string | undefined {
  return GITHUB_REMOTE.exec(url ?? '')?.[1]
}

function git(folder: string, ...args: string[]): string | undefined {
  try {
    return execFileSync('git', ['-C', folder, ...args], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim()
  } catch {
    return undefined
  }
}
