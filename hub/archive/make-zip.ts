import { execFile } from 'node:child_process'
import { lstatSync, readdirSync, readFileSync, readlinkSync, realpathSync, type Stats, statSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, relative, resolve, sep } from 'node:path'
import { promisify } from 'node:util'
import AdmZip from 'adm-zip'
import { HubError } from '../errors.ts'
import { MAX_ARCHIVE_BYTES, MAX_ENTRIES } from './entries.ts'

const SYMLINK_MODE = 0o120777
const EARLIEST_ZIP_TIME = new Date(1980, 0, 1)

const NEVER_PUBLISHED = new Set(['.git', 'node_modules', '.venv', 'venv', '__pycache__', '.env', '.DS_Store'])
const SETTINGS_WITH_VALUES = /^\.env\.(?!template$|example$|sample$)/
const KEY_FILE = /^id_(rsa|dsa|ecdsa|ed25519)$|\.(key|p12|pfx|jks|keystore)$/
const PRIVATE_KEY_PEM = /-----BEGIN [A-Z ]*PRIVATE KEY-----/

/** A host's default limit for the extracted files (contract 4.3). The packed files are all in memory for a moment. */
const MAX_FILE_BYTES = 2 * 1024 ** 3

/** A ZIP of a folder. `leftOut` lists the paths that are not in it, relative to the folder, with `/`. */
interface FolderArchive {
  readonly bytes: Buffer
  readonly leftOut: string[]
}

/**
 * Packs a folder as a ZIP. The same files give the same bytes: entries are sorted by name, times are fixed, and modes
 * are 0644 or 0755. Symlinks stay symlinks. Leaves out version control, installed dependencies, caches, settings and
 * private keys. Throws HubError 400 if the folder does not exist, if there is nothing to publish, and for more than
 * 100,000 entries or 2 GiB. Also throws it for a device, FIFO or socket, for a symlink that is absolute or broken or
 * leads out of the folder, and for a name that contains a backslash or is not UTF-8.
 */
export function zipFolder(folder: string): FolderArchive {
  const root = openFolder(folder)
  const zip = new AdmZip({ noSort: true })
  const leftOut: string[] = []
  addFolder({ root, zip, leftOut, fileBytes: 0 }, root)
  if (zip.getEntryCount() === 0)
    throw new HubError(400, `The folder ${folder} contains nothing to publish: correct the path, or add files.`)
  return { bytes: zip.toBuffer(), leftOut }
}

function openFolder(folder: string): string {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return realpathSync(folder)
  throw new HubError(400, `There is no folder ${folder} to publish: correct the path.`)
}

interface Packing {
  readonly root: string
  readonly zip: AdmZip
  readonly leftOut: string[]
  fileBytes: number
}

function addFolder(packing: Packing, folder: string): void {
  const names = readdirSync(folder).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  for (const name of names) {
    requirePortableName(join(folder, name))
    addPath(packing, join(folder, name))
  }
}

/**
 * The archiver would treat a backslash as a slash. Bytes that are not UTF-8 become U+FFFD in a string, so no string
 * can represent such a name.
 */
function requirePortableName(path: string): void {
  if (!/[\\\ufffd]/.test(basename(path))) return
  throw new HubError(
    400,
    `${JSON.stringify(path)} cannot be published, because its name contains a backslash, U+FFFD or bytes that are not UTF-8: rename it.`,
  )
}

function addPath(packing: Packing, path: string): void {
  const entryName = relative(packing.root, path).split(sep).join('/')
  const found = lstatSync(path)
  if (isLeftOut(path, found)) return void packing.leftOut.push(entryName)
  if (found.isFile()) packing.fileBytes += found.size
  requireZipRoom(packing)
  if (found.isDirectory()) {
    addEntry(packing.zip, { name: `${entryName}/`, content: Buffer.alloc(0), mode: 0o755 })
    addFolder(packing, path)
  } else if (found.isSymbolicLink()) {
    addEntry(packing.zip, { name: entryName, content: readLink(packing.root, path), mode: SYMLINK_MODE })
  } else if (found.isFile()) {
    const mode = found.mode & 0o100 ? 0o755 : 0o644
    addEntry(packing.zip, { name: entryName, content: readFileSync(path), mode })
  } else {
    throw new HubError(400, `${path} is not a file, folder or symlink, so it cannot be published: remove it.`)
  }
}

/** Checks the limits before a file is read, because the publisher may have named a home folder by mistake. */
function requireZipRoom({ root, zip, fileBytes }: Packing): void {
  const isTooLarge = fileBytes > MAX_FILE_BYTES
  if (!isTooLarge && zip.getEntryCount() < MAX_ENTRIES) return
  const most = isTooLarge ? `more than ${MAX_FILE_BYTES} bytes` : `more than ${MAX_ENTRIES} entries`
  throw new HubError(
    400,
    `The folder ${root} has ${most}, which hosts refuse by default: name only the folder of the plugin or service, or remove some files.`,
  )
}

function isLeftOut(path: string, found: Stats): boolean {
  const name = basename(path)
  if (NEVER_PUBLISHED.has(name) || SETTINGS_WITH_VALUES.test(name) || KEY_FILE.test(name)) return true
  return name.endsWith('.pem') && found.isFile() && PRIVATE_KEY_PEM.test(readFileSync(path, 'latin1'))
}

interface Entry {
  readonly name: string
  readonly content: Buffer
  readonly mode: number
}

function addEntry(zip: AdmZip, { name, content, mode }: Entry): void {
  const entry = zip.addFile(name, content, '', mode)
  entry.header.time = EARLIEST_ZIP_TIME
  if (mode === SYMLINK_MODE) entry.attr = (SYMLINK_MODE << 16) >>> 0
}

function readLink(root: string, path: string): Buffer {
  const target = readlinkSync(path)
  const isRelative = !isAbsolute(target) && !climbsOut(join(relative(root, dirname(path)), target))
  if (!isRelative || !isInside(root, follow(path))) {
    throw new HubError(
      400,
      `The symlink ${path} leads to ${target}: it must be relative, and lead, at every step, to a file or folder inside ${root}.`,
    )
  }
  return Buffer.from(target)
}

/**
 * True for a target that leaves the folder, even if it returns through the folder's own name: such a target breaks when
 * the folder is renamed.
 */
function climbsOut(target: string): boolean {
  return target.split(sep)[0] === '..'
}

function follow(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return ''
  }
}

function isInside(root: string, path: string): boolean {
  return path.startsWith(`${root}${sep}`)
}

const run = promisify(execFile)

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
