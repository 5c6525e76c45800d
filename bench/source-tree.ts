import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createRandom } from './random.ts'
import { SLUG, type Version, versionName } from './release.ts'
import type { Workload } from './workloads.ts'

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
