import { lstatSync, readdirSync, readFileSync, readlinkSync, realpathSync, type Stats, statSync } from 'node:fs'
import { basename, join, posix } from 'node:path'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { hashFile } from '../files.ts'
import { partIdSchema } from '../names.ts'
import { parseYamlDocument } from '../yaml.ts'

export const PLAN_PATH = 'deployment/install.yaml'
export const DEFAULT_PLUGINS_DIRNAME = 'plugins'

const UNPORTABLE_NAME = /[\\\p{Cc}\uFFFD]/u
const MAX_NAME_BYTES = 255

/** The files, folders and symlinks of a project's source folder that are sealed, and those that are left out. */
export interface SourceTree {
  /** The members by path. A folder comes before its content. */
  readonly members: ReadonlyMap<string, Member>
  /** The path of the plan's file. */
  readonly plan: string
  /** The plugins folder, below the source folder. */
  readonly pluginsDirname: string
  /** Paths of plugins and of extensions. */
  readonly plugins: readonly string[]
  readonly extensions: readonly string[]
  /** Paths that exist but are not sealed. */
  readonly leftOut: readonly string[]
}

const integrationSchema = z.object({ plugins: z.object({ directory: z.string().min(1) }) })

/**
 * Returns the folder of the plugins, relative to the source folder: the one that the host framework's own file
 * (integration.yaml) names, else `plugins`. Throws HubError 400 if that file is not YAML.
 */
export function findPluginsDirname(source: string): string {
  const file = join(source, 'integration.yaml')
  if (!statSync(file, { throwIfNoEntry: false })?.isFile()) return DEFAULT_PLUGINS_DIRNAME
  const value = parseYamlDocument(readFileSync(file, 'utf8'), 'integration.yaml').toJS({ maxAliasCount: 0 })
  const named = integrationSchema.safeParse(value).data?.plugins.directory ?? DEFAULT_PLUGINS_DIRNAME
  return named.replace(/^(?:\.\/+)+/, '').replace(/(?<=.)\/+$/, '')
}

interface Reading {
  readonly root: string
  readonly members: Map<string, Member>
  readonly leftOut: string[]
}

/**
 * Reads the plugins, the extensions and the plan. Leaves out all other content of the source folder, and everything
 * that isNeverSealed names. Throws HubError 400 if there is no plugin or no plan, and for anything but files, folders
 * and symlinks. Also throws it if a name is not valid on every host, or if a symlink is broken or leads out of its
 * plugin or extension.
 */
export function readSourceTree(source: string, pluginsDirname: string): SourceTree {
  const reading: Reading = { root: openFolder(source), members: new Map(), leftOut: [] }
  const plugins = addParts(reading, pluginsDirname)
  if (plugins.length === 0)
    throw refused(
      `${join(source, pluginsDirname)} contains no plugin: add at least one, or name another folder with --plugins-dirname.`,
    )
  const extensions = addParts(reading, 'extensions')
  for (const member of reading.members.values()) {
    if (member.type === 'symlink') requireInside(reading.members, member, partOf(member.path, pluginsDirname))
  }
  addPlan(reading)
  const [first = ''] = pluginsDirname.split('/')
  const top = namesIn(reading, '').filter(name => !['extensions', 'deployment', first].includes(name))
  const { root, members } = reading
  const plan = join(root, PLAN_PATH)
  return { members, plan, pluginsDirname, plugins, extensions, leftOut: [...reading.leftOut, ...top] }
}

function openFolder(source: string): string {
  if (statSync(source, { throwIfNoEntry: false })?.isDirectory()) return realpathSync(source)
  throw refused(`There is no folder ${source} to seal: correct the path.`)
}

/** Skips files next to the plugins, and folders whose names start with "_", as host frameworks do. */
function addParts(reading: Reading, dirname: string): string[] {
  const found = statOf(reading, dirname)
  if (found === undefined) return []
  if (!found.isDirectory())
    throw refused(
      `${join(reading.root, dirname)} is not a folder, or is only a symlink to one: replace it with a folder that contains one folder for each part.`,
    )
  for (const [index] of dirname.split('/').entries()) {
    const path = dirname.split('/', index + 1).join('/')
    reading.members.set(path, { path, type: 'directory' })
  }
  const paths = namesIn(reading, dirname).map(name => `${dirname}/${name}`)
  const { parts = [], others = [] } = Object.groupBy(paths, path => (isPart(reading, path) ? 'parts' : 'others'))
  reading.leftOut.push(...others)
  for (const path of parts) addPart(reading, path)
  return parts
}

function isPart(reading: Reading, path: string): boolean {
  const name = basename(path)
  return !isNeverSealed(name) && !name.startsWith('_') && statOf(reading, path)?.isDirectory() === true
}

function addPart(reading: Reading, path: string): void {
  const parsed = partIdSchema.safeParse(basename(path))
  if (!parsed.success) throw refused(`The name of the folder ${path} ${parsed.error.issues[0]?.message}.`)
  addFolder(reading, path)
}

function addPlan(reading: Reading): void {
  const found = statOf(reading, PLAN_PATH)
  if (!found?.isFile())
    throw refused(
      `The plan ${join(reading.root, PLAN_PATH)} ${found === undefined ? 'does not exist' : 'is not a regular file'}: a project needs this file.`,
    )
  reading.members.set('deployment', { path: 'deployment', type: 'directory' })
  addPath(reading, PLAN_PATH, found)
  const others = namesIn(reading, 'deployment').filter(name => `deployment/${name}` !== PLAN_PATH)
  reading.leftOut.push(...others.map(name => `deployment/${name}`))
}

function addFolder(reading: Reading, folder: string): void {
  reading.members.set(folder, { path: folder, type: 'directory' })
  for (const name of namesIn(reading, folder)) {
    const path = `${folder}/${name}`
    const found = statOf(reading, path)
    if (isNeverSealed(name)) reading.leftOut.push(path)
    else if (found === undefined)
      throw refused(`${path} was removed while it was being sealed: seal the project again.`)
    else addPath(reading, path, found)
  }
}

function addPath(reading: Reading, path: string, found: Stats): void {
  requirePortable(path)
  const source = join(reading.root, path)
  if (found.isDirectory()) {
    addFolder(reading, path)
  } else if (found.isSymbolicLink()) {
    reading.members.set(path, { path, type: 'symlink', target: readlinkSync(source) })
  } else if (found.isFile()) {
    const isExecutable = (found.mode & 0o100) !== 0
    reading.members.set(path, { path, type: 'file', source, size: found.size, isExecutable, sha256: hashFile(source) })
  } else {
    throw refused(`${source} is not a file, folder or symlink, so it cannot be sealed: remove it.`)
  }
}

function requirePortable(path: string): void {
  const name = path.slice(path.lastIndexOf('/') + 1)
  if (!UNPORTABLE_NAME.test(name) && Buffer.byteLength(name) <= MAX_NAME_BYTES) return
  throw refused(
    `The name of ${JSON.stringify(path)} is not portable: it must be UTF-8 of at most ${MAX_NAME_BYTES} bytes, without backslashes or control characters.`,
  )
}

/** The folder of the part that contains a path. */
function partOf(path: string, pluginsDirname: string): string {
  const levels = path.startsWith('extensions/') ? 2 : pluginsDirname.split('/').length + 1
  return path.split('/', levels).join('/')
}

/**
 * Refuses a symlink that leads to another part, or out of its own part and back in by name. Each part is installed
 * separately, so such a symlink could lead somewhere else on the host.
 */
function requireInside(members: ReadonlyMap<string, Member>, link: LinkMember, part: string): void {
  const rest = link.path.slice(part.length + 1).split('/')
  const climbsOut = posix.join(...rest.slice(0, -1), link.target).split('/')[0] === '..'
  if (!climbsOut && resolveLink(members, link, { within: part }) !== undefined) return
  throw refused(
    `The symlink ${link.path} leads to ${link.target}: it must be relative and lead, at every step, to a sealed file or folder inside ${part}.`,
  )
}

function namesIn({ root }: Reading, folder: string): string[] {
  return readdirSync(join(root, folder)).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
}

function statOf({ root }: Reading, path: string): Stats | undefined {
  return lstatSync(join(root, path), { throwIfNoEntry: false })
}

function refused(message: string): HubError {
  return new HubError(400, message)
}

const FOLDERS_AND_FILES = new Set([
  '.git',
  '.hg',
  '.svn',
  '.gitmodules',
  'node_modules',
  '__pycache__',
  '.venv',
  'venv',
  '.tox',
  '.nox',
  '.mypy_cache',
  '.pytest_cache',
  '.ruff_cache',
  '.cache',
  '.ds_store',
  'thumbs.db',
  '.idea',
  '.vscode',
  '.ssh',
  '.gnupg',
  '.aws',
  '.azure',
  '.kube',
  '.docker',
  '.npmrc',
  '.yarnrc.yml',
  '.pypirc',
  '.netrc',
  '_netrc',
  '.pgpass',
  '.my.cnf',
  '.htpasswd',
  '.git-credentials',
  'credentials.json',
  'service-account.json',
  '.envrc',
])
const COMPILED = /\.py[co]$/
const KEY_FILE = /^id_(?:rsa|dsa|ecdsa|ed25519)|\.(?:pem|key|p8|p12|pfx|ppk|jks|keystore|kdbx)$/
const SETTINGS =
  /^\.env[.~]|\.env(?:~|\.bak|\.old|\.orig)?$|\.env\.(?:local|dev|development|test|staging|prod|production)$/
const TEMPLATE = /\.(?:template|example|sample|dist|tmpl)$/

/**
 * True if sealing leaves out every file or folder of this name, in upper or lower case. It leaves out version control,
 * installed dependencies, caches, settings with values (`.env`, `x.env`, but not their templates), private keys and the
 * credential files of common tools.
 */
function isNeverSealed(name: string): boolean {
  const lower = name.toLowerCase()
  if (FOLDERS_AND_FILES.has(lower) || COMPILED.test(lower) || KEY_FILE.test(lower)) return true
  return SETTINGS.test(lower) && !TEMPLATE.test(lower)
}

interface Place {
  /** Relative to the project's root, with `/`. */
  readonly path: string
}

export interface FileMember extends Place {
  readonly type: 'file'
  /** The file to read. */
  readonly source: string
  readonly size: number
  readonly isExecutable: boolean
  /** Lowercase hex. */
  readonly sha256: string
}

interface LinkMember extends Place {
  readonly type: 'symlink'
  readonly target: string
}

/** A file, symlink or folder that becomes one entry of the sealed tar. */
export type Member = FileMember | LinkMember | (Place & { readonly type: 'directory' })

/** The most symlinks that clients follow on one path. */
const MAX_HOPS = 40

interface Following {
  /** The folder that contains the symlink and that no step may leave; `''` means the project's root. */
  readonly within: string
  /** The most symlinks to follow. */
  readonly hops?: number
}

/**
 * Returns the sealed file or folder that a symlink leads to, directly or through other symlinks. Undefined if there is
 * none, if a target is not relative, if a step leaves the sealed folders of `within`, or if the chain has more than 40
 * symlinks.
 */
export function resolveLink(
  members: ReadonlyMap<string, Member>,
  { path, target }: LinkMember,
  { within, hops = MAX_HOPS }: Following,
): Member | undefined {
  if (target.startsWith('/')) return undefined
  const lowest = within === '' ? 0 : within.split('/').length
  const at = path.split('/').slice(0, -1)
  for (const step of target.split('/')) {
    if (at.length < lowest || members.get(at.join('/'))?.type !== 'directory') return undefined
    if (step === '..') at.pop()
    else if (step !== '' && step !== '.') at.push(step)
    const found = members.get(at.join('/'))
    if (found?.type !== 'symlink') continue
    const end = hops > 1 ? resolveLink(members, found, { within, hops: hops - 1 }) : undefined
    if (end === undefined) return undefined
    at.splice(0, at.length, ...end.path.split('/'))
  }
  return at.length < lowest ? undefined : members.get(at.join('/'))
}
