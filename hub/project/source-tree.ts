import { lstatSync, readdirSync, readlinkSync, realpathSync, type Stats, statSync } from 'node:fs'
import { basename, join, posix } from 'node:path'
import { HubError } from '../errors.ts'
import { hashFile } from './file-pieces.ts'
import { isNeverSealed } from './left-out.ts'
import { type LinkMember, type Member, resolveLink } from './member.ts'
import { partIdSchema } from './names.ts'

export const PLAN_PATH = 'deployment/install.yaml'

const UNPORTABLE_NAME = /[\\\p{Cc}\uFFFD]/u
const MAX_NAME_BYTES = 255

/** What a project's source folder gives to seal. */
export interface SourceTree {
  /** By path; a folder comes before its content. */
  readonly members: ReadonlyMap<string, Member>
  /** Where to read the plan. */
  readonly plan: string
  /** The folder of the plugins, below the source folder. */
  readonly pluginsDirname: string
  /** Paths of plugins and of extensions. */
  readonly plugins: readonly string[]
  readonly extensions: readonly string[]
  /** Paths that are there and are not sealed. */
  readonly leftOut: readonly string[]
}

interface Reading {
  readonly root: string
  readonly members: Map<string, Member>
  readonly leftOut: string[]
}

/**
 * Reads the folders of plugins and of extensions, and the plan; everything else in the source folder is left out, and
 * so is what isNeverSealed names. Nothing is written. Throws HubError 400 when a part is missing, a name could not
 * exist on every host, a symlink leads out of its plugin or extension or nowhere, or something is no file, folder or
 * symlink.
 */
export function readSourceTree(source: string, pluginsDirname: string): SourceTree {
  const reading: Reading = { root: openFolder(source), members: new Map(), leftOut: [] }
  const plugins = addParts(reading, pluginsDirname)
  if (plugins.length === 0)
    throw refused(`There is no plugin in ${join(source, pluginsDirname)}: a project has at least one.`)
  const extensions = addParts(reading, 'extensions')
  for (const member of reading.members.values()) {
    if (member.type === 'symlink') requireInside(reading.members, member)
  }
  addPlan(reading)
  const top = namesIn(reading, '').filter(name => !['extensions', 'deployment', pluginsDirname].includes(name))
  const { root, members } = reading
  const plan = join(root, PLAN_PATH)
  return { members, plan, pluginsDirname, plugins, extensions, leftOut: [...reading.leftOut, ...top] }
}

function openFolder(source: string): string {
  if (statSync(source, { throwIfNoEntry: false })?.isDirectory()) return realpathSync(source)
  throw refused(`What to seal must be a folder, and ${source} is none.`)
}

/** A file next to the plugins is not a part; nor is a folder whose name starts with "_", which host frameworks skip. */
function addParts(reading: Reading, dirname: string): string[] {
  const found = statOf(reading, dirname)
  if (found === undefined) return []
  if (!found.isDirectory()) throw refused(`${join(reading.root, dirname)} must be a folder.`)
  reading.members.set(dirname, { path: dirname, type: 'directory' })
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
  if (!found?.isFile()) throw refused(`A project needs its plan: ${join(reading.root, PLAN_PATH)} is not there.`)
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
    else if (found === undefined) throw refused(`${path} went away while it was sealed.`)
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
    throw refused(`Only files, folders and symlinks can be sealed, and ${source} is something else.`)
  }
}

function requirePortable(path: string): void {
  const name = path.slice(path.lastIndexOf('/') + 1)
  if (!UNPORTABLE_NAME.test(name) && Buffer.byteLength(name) <= MAX_NAME_BYTES) return
  throw refused(`The name of ${JSON.stringify(path)} must be UTF-8 without backslashes and control characters.`)
}

/**
 * Each plugin and extension is installed by itself: a symlink from one to another, or out of one and back in by its
 * name, could lead elsewhere on the host.
 */
function requireInside(members: ReadonlyMap<string, Member>, link: LinkMember): void {
  const [kind, id, ...rest] = link.path.split('/')
  const climbsOut = posix.join(...rest.slice(0, -1), link.target).split('/')[0] === '..'
  if (!climbsOut && resolveLink(members, link) !== undefined) return
  throw refused(
    `The symlink ${link.path} must lead, relatively and through no other symlink, to something sealed inside ${kind}/${id}, and leads to ${link.target}.`,
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
