import { createHash } from 'node:crypto'
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { isAccessible } from '../local/is-accessible.ts'
import { SLUG, type Version, versionName, type Workload } from './workloads.ts'

const FILES_PER_FOLDER = 12
const FOLDERS_PER_PACKAGE = 20
/** One file in five differs between the versions. */
const CHANGED_EVERY = 5
const LONGEST_PASSAGE_BYTES = 65_536
const NEW_LINE = 10

export interface SourceRecipe {
  readonly workload: Workload
  readonly version: Version
  /** The text that the files take their passages from. */
  readonly sample: Buffer
}

/**
 * Writes one version of a plugin's sources below `folder`. If the workload has several plugins, `part` is the plugin's
 * index. The index of a file decides its passages, so the same sample gives the same tree. File sizes follow an
 * exponential distribution.
 */
export function writeSourceTree({ workload, version, sample }: SourceRecipe, folder: string, part = 0): void {
  const ofPart = workload.files / (workload.parts ?? 1)
  for (let index = part * ofPart; index < (part + 1) * ofPart; index++) {
    const seed = index * 10 + (index % CHANGED_EVERY === 0 ? version : 0)
    writeSourceFile(join(folder, filePath(index)), sizeOfFile(index, workload), createReader(sample, seed))
  }
  writeFileSync(join(folder, 'plugin.yaml'), `name: ${SLUG}\nversion: ${versionName(version)}\n`)
}

function filePath(index: number): string {
  const folder = Math.floor(index / FILES_PER_FOLDER)
  const parent = `package_${Math.floor(folder / FOLDERS_PER_PACKAGE)}`
  return join('src', parent, `part_${folder % FOLDERS_PER_PACKAGE}`, `module_${index}.py`)
}

function sizeOfFile(index: number, { files, bytes }: Workload): number {
  if (files === 1) return bytes
  const spread = -Math.log(1 - createRandom(index)())
  return Math.max(1, Math.round((bytes / files) * spread))
}

/** Returns a passage of at most this many bytes, a different one each time. */
type PassageReader = (longest: number) => Buffer

function writeSourceFile(path: string, size: number, nextPassage: PassageReader): void {
  mkdirSync(dirname(path), { recursive: true })
  const file = openSync(path, 'w')
  try {
    for (let missing = size; missing > 0; ) missing -= writeSync(file, nextPassage(missing))
  } finally {
    closeSync(file)
  }
}

function createReader(sample: Buffer, seed: number): PassageReader {
  const random = createRandom(seed)
  return longest => {
    const start = sample.indexOf(NEW_LINE, Math.floor(random() * sample.length * 0.99)) + 1
    return sample.subarray(start, start + Math.min(longest, Math.ceil(random() * LONGEST_PASSAGE_BYTES)))
  }
}

/** The ids of a project's plugins. */
export function pluginIds(parts = 1): readonly string[] {
  return parts === 1 ? [SLUG] : Array.from({ length: parts }, (_, index) => `${SLUG}-${index + 1}`)
}

/** Adds the manifest and the install plan to a project that already contains its plugins (docs/project-contract.md). */
export function addProjectFiles(project: string, version: string, ids: readonly string[]): void {
  mkdirSync(join(project, 'deployment'))
  writeFileSync(join(project, 'deployment/install.yaml'), installPlan(version, ids))
  const manifest = {
    format_version: '1',
    project_id: SLUG,
    project_name: 'Bench',
    version,
    built_at: '2026-01-01T00:00:00Z',
    plugins: ids.map(id => ({ id, version, sha256: digestTree(join(project, 'plugins', id)) })),
    extensions: [],
    content_sha256: digestTree(project),
  }
  writeFileSync(join(project, 'manifest.json'), JSON.stringify(manifest, null, 2))
}

/** A plan that installs these plugins. It keeps the replaced versions, as the peers do. */
export function installPlan(version: string, ids: readonly string[] = [SLUG]): string {
  return [
    'format_version: "1"',
    `project_id: ${SLUG}`,
    `version: ${version}`,
    'steps:',
    ...ids.map((id, index) => `  - {id: files-${index + 1}, action: install_plugin, plugin: ${id}, snapshot: true}`),
    '',
  ].join('\n')
}

function digestTree(root: string): string {
  const paths = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile())
    .map(entry => relative(root, join(entry.parentPath, entry.name)))
  const lines = paths.toSorted(byComponents).map(path => `${path}:${sha256(readFileSync(join(root, path)))}`)
  return sha256(lines.join('\n'))
}

// With the smallest byte as separator, paths sort component by component.
function byComponents(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a.replaceAll('/', '\0')), Buffer.from(b.replaceAll('/', '\0')))
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

const SOURCES = ['/usr/lib/python3', '/usr/share', join(import.meta.dirname, '../node_modules')]
const TEXT_FILE = /\.(py|js|ts|md|txt|json|sh|h|c|css|xml|ya?ml|pl|pm)$/
const MAX_FILE_BYTES = 200_000
const SAMPLE_BYTES = 24_000_000

/**
 * Returns about 24 MB of code and prose from this machine's files, or all of it if there is less. The order is always
 * the same.
 */
export function readSampleText(): Buffer {
  const pieces: Buffer[] = []
  for (const [index, source] of SOURCES.filter(path => existsSync(path)).entries()) {
    const wanted = ((index + 1) * SAMPLE_BYTES) / SOURCES.length - sizeOf(pieces)
    collectText(source, wanted, pieces)
  }
  return Buffer.concat(pieces)
}

function collectText(folder: string, wanted: number, pieces: Buffer[]): void {
  let missing = wanted
  for (const path of listTextFiles(folder)) {
    if (missing <= 0) return
    const text = readFileSync(path)
    pieces.push(text)
    missing -= text.length
  }
}

/** Skips files that this user cannot read. */
function listTextFiles(folder: string): string[] {
  return listFiles(folder)
    .filter(path => TEXT_FILE.test(path) && isAccessible(path, constants.R_OK) && statSync(path).size <= MAX_FILE_BYTES)
    .toSorted()
}

function listFiles(folder: string): string[] {
  if (!isAccessible(folder, constants.R_OK)) return []
  return readdirSync(folder, { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) return listFiles(path)
    return entry.isFile() ? [path] : []
  })
}

function sizeOf(pieces: readonly Buffer[]): number {
  return pieces.reduce((total, piece) => total + piece.length, 0)
}

/** A generator of numbers from 0 (inclusive) to 1 (exclusive). The same seed gives the same numbers (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}
