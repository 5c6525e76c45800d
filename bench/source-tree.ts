import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createRandom } from './random.ts'
import { SLUG, type Version, versionName } from './release.ts'
import type { Workload } from './workloads.ts'

const FILES_A_FOLDER = 12
const FOLDERS_A_PACKAGE = 20
/** Of the files, one in so many differs between the versions. */
const CHANGED_SHARE = 5
const LONGEST_PASSAGE_BYTES = 65_536
const NEW_LINE = 10

/**
 * Writes one version of a plugin's sources below `folder`: passages of the sample, chosen by the number of the file, so
 * that the same sample gives the same tree. File sizes are spread exponentially around their mean.
 */
export function writeSourceTree(workload: Workload, version: Version, sample: Buffer, folder: string): void {
  for (let index = 0; index < workload.files; index++) {
    const seed = index * 10 + (index % CHANGED_SHARE === 0 ? version : 0)
    writeSourceFile(join(folder, filePath(index)), sizeOfFile(index, workload), seed, sample)
  }
  writeFileSync(join(folder, 'plugin.yaml'), `name: ${SLUG}\nversion: ${versionName(version)}\n`)
}

function filePath(index: number): string {
  const folder = Math.floor(index / FILES_A_FOLDER)
  const parent = `package_${Math.floor(folder / FOLDERS_A_PACKAGE)}`
  return join('src', parent, `part_${folder % FOLDERS_A_PACKAGE}`, `module_${index}.py`)
}

function sizeOfFile(index: number, { files, bytes }: Workload): number {
  if (files === 1) return bytes
  const spread = -Math.log(1 - createRandom(index)())
  return Math.max(1, Math.round((bytes / files) * spread))
}

function writeSourceFile(path: string, size: number, seed: number, sample: Buffer): void {
  mkdirSync(dirname(path), { recursive: true })
  const file = openSync(path, 'w')
  try {
    const random = createRandom(seed)
    for (let missing = size; missing > 0; ) missing -= writeSync(file, passage(sample, random, missing))
  } finally {
    closeSync(file)
  }
}

function passage(sample: Buffer, random: () => number, longest: number): Buffer {
  const start = sample.indexOf(NEW_LINE, Math.floor(random() * sample.length * 0.99)) + 1
  return sample.subarray(start, start + Math.min(longest, Math.ceil(random() * LONGEST_PASSAGE_BYTES)))
}
