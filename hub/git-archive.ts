import { execFile } from 'node:child_process'
import { basename, resolve } from 'node:path'
import { promisify } from 'node:util'
import { HubError } from './errors.ts'

const run = promisify(execFile)
const MAX_ARCHIVE_BYTES = 512 * 1024 * 1024

export interface GitSource {
  /** The path of a local repository, bare or not. */
  readonly repository: string
  /** A tag, branch or commit. */
  readonly ref: string
  /** The first part of the top-level directory's name. Default: the name of the repository's folder. */
  readonly name?: string | undefined
}

/**
 * Creates the archive that a code host offers for download: a ZIP of the commit with one top-level directory,
 * `<name>-<ref>/`. Throws HubError 400 if the repository has no such commit, if git fails or cannot run, or if the
 * archive has more than 512 MiB.
 */
export async function zipGitCommit(source: GitSource): Promise<Buffer> {
  const commit = await resolveCommit(source)
  const prefix = `--prefix=${topLevelDirectory(source)}/`
  return git(source, ['-c', 'core.autocrlf=false', 'archive', '--format=zip', prefix, commit])
}

async function resolveCommit(source: GitSource): Promise<string> {
  const args = ['rev-parse', '--quiet', '--verify', '--end-of-options', `${source.ref}^{commit}`]
  return (await git(source, args)).toString().trim()
}

function topLevelDirectory({ repository, ref, name }: GitSource): string {
  const folder = basename(resolve(repository)).replace(/\.git$/, '')
  return `${name ?? folder}-${ref.replaceAll('/', '-')}`
}

async function git(source: GitSource, args: string[]): Promise<Buffer> {
  const options = { encoding: 'buffer', env: withoutGitSettings(), maxBuffer: MAX_ARCHIVE_BYTES } as const
  try {
    return (await run('git', ['-C', resolve(source.repository), ...args], options)).stdout
  } catch (error) {
    throw new HubError(400, describeFailure(source, error))
  }
}

/** Only `rev-parse --quiet` exits with 1, and it then prints nothing. */
function describeFailure({ repository, ref }: GitSource, error: unknown): string {
  if (error instanceof Error && 'code' in error && error.code === 1)
    return `${repository} has no tag, branch or commit ${JSON.stringify(ref)}: correct --ref, or fetch it first.`
  if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
    return 'There is no program git on PATH: install git, or publish the folder with --from.'
  if (error instanceof Error && 'code' in error && error.code === 'ERR_CHILD_PROCESS_STDIO_MAXBUFFER')
    return `The archive of ${ref} of ${repository} has more than ${MAX_ARCHIVE_BYTES} bytes, which hosts refuse by default: publish a commit with smaller files.`
  return `Git cannot archive ${ref} of ${repository} (${reasonOf(error)}): check --git and --ref.`
}

/** The caller's GIT_DIR, for example in a hook, must not decide which repository is published. */
function withoutGitSettings(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('GIT_')))
}

function reasonOf(error: unknown): string {
  const stderr = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : ''
  const reason = stderr || (error instanceof Error ? error.message : String(error))
  return (reason.split('\n')[0] ?? '').replace(/[.\s]+$/, '')
}
