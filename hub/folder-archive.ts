import { lstatSync, readdirSync, readFileSync, readlinkSync, realpathSync, type Stats, statSync } from 'node:fs'
import { basename, dirname, isAbsolute, join, relative, sep } from 'node:path'
import AdmZip from 'adm-zip'
import { HubError } from './errors.ts'

const SYMLINK_MODE = 0o120777
const EARLIEST_ZIP_TIME = new Date(1980, 0, 1)

const NEVER_PUBLISHED = new Set(['.git', 'node_modules', '__pycache__', '.env', '.DS_Store'])
const SETTINGS_WITH_VALUES = /^\.env\.(?!template$|example$|sample$)/
const KEY_FILE = /^id_(rsa|dsa|ecdsa|ed25519)$|\.(key|p12|pfx|jks|keystore)$/
const PRIVATE_KEY_PEM = /-----BEGIN [A-Z ]*PRIVATE KEY-----/

/** A ZIP of a folder, and the paths (relative to the folder, with `/`) that were left out of it. */
export interface FolderArchive {
  readonly bytes: Buffer
  readonly leftOut: string[]
}

/**
 * The folder as a ZIP: the same files give the same bytes (entries in the order of their names, fixed times, modes
 * 0644 or 0755). Symlinks stay symlinks. Version control, installed dependencies, caches, settings and private keys
 * are left out. Throws HubError 400 on a symlink that leads nowhere or out of the folder, on a device, FIFO or
 * socket, when there is no such folder, and when nothing is left to publish.
 */
export function zipFolder(folder: string): FolderArchive {
  const root = openFolder(folder)
  const zip = new AdmZip({ noSort: true })
  const leftOut: string[] = []
  addFolder({ root, zip, leftOut }, root)
  if (zip.getEntryCount() === 0) throw new HubError(400, `There is nothing to publish in ${folder}.`)
  return { bytes: zip.toBuffer(), leftOut }
}

function openFolder(folder: string): string {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory()) return realpathSync(folder)
  throw new HubError(400, `What to publish must be a folder, and ${folder} is none.`)
}

interface Packing {
  readonly root: string
  readonly zip: AdmZip
  readonly leftOut: string[]
}

function addFolder(packing: Packing, folder: string): void {
  const names = readdirSync(folder).sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  for (const name of names) addPath(packing, join(folder, name))
}

function addPath(packing: Packing, path: string): void {
  const entryName = relative(packing.root, path).split(sep).join('/')
  const found = lstatSync(path)
  if (isLeftOut(path, found)) {
    packing.leftOut.push(entryName)
  } else if (found.isDirectory()) {
    addEntry(packing.zip, { name: `${entryName}/`, content: Buffer.alloc(0), mode: 0o755 })
    addFolder(packing, path)
  } else if (found.isSymbolicLink()) {
    addEntry(packing.zip, { name: entryName, content: readLink(packing.root, path), mode: SYMLINK_MODE })
  } else if (found.isFile()) {
    const mode = found.mode & 0o100 ? 0o755 : 0o644
    addEntry(packing.zip, { name: entryName, content: readFileSync(path), mode })
  } else {
    throw new HubError(400, `Only files, folders and symlinks can be published, and ${path} is something else.`)
  }
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
    throw new HubError(400, `The symlink ${path} must lead to something inside ${root}, and leads to ${target}.`)
  }
  return Buffer.from(target)
}

/** A target that leaves the folder and comes back by its name would lead elsewhere once the folder has another one. */
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
