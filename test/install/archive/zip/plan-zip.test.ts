import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { promisify } from 'node:util'
import { ReadWindow } from '../../../../src/install/archive/read-window.ts'
import { planZip } from '../../../../src/install/archive/zip/plan-zip.ts'
import { TimeSlice } from '../../../../src/install/files/time-slice.ts'
import { buildZip, directory, file, symlink, type ZipItem } from '../../../archives/zip-builder.ts'
import { inTemporaryDirectory, withVerifiedArtifact } from '../verified-artifact.ts'

const run = promisify(execFile)

const RULES = { maxExtractedBytes: 1e9, maxEntries: 1000, platform: 'linux', shape: 'flattened' } as const

/** An object for each file would take 100 bytes or more. */
const MAX_HEAP_BYTES_PER_FILE = 50
/** A path of 60 levels would take 4,000 bytes or more if each path had its own copy of the levels above it. */
const MAX_HEAP_BYTES_PER_DEEP_PATH = 600

const DEEP = Array.from({ length: 60 }, (_, level) => `level-${level}`).join('/')

const files = (count: number): ZipItem[] =>
  Array.from({ length: count }, (_, at) => file(`top/folder-${at % 100}/file-number-${at}`))

const symlinksIntoTheDeep = (count: number): ZipItem[] => [
  file(`${DEEP}/x`),
  symlink('d/short', `../${DEEP}`),
  ...Array.from({ length: count }, (_, at) => symlink(`d/l${at}`, 'short/x')),
]

/** The directories are below two top-level directories in turn. */
const deepDirectories = (count: number): ZipItem[] => [
  file('a'),
  ...Array.from({ length: count }, (_, at) => directory(`${at % 2}/${DEEP}/${at}/`)),
]

/** Returns the bytes of heap that a planned ZIP with 10,000 of these items takes for each path. */
async function heapBytesPerItem(items: (count: number) => ZipItem[]): Promise<number> {
  return await inTemporaryDirectory(async folder => {
    const paths = [500, 10_000].map(count => {
      const path = join(folder, `${count}.zip`)
      writeFileSync(path, buildZip(items(count)))
      return path
    })
    const child = join(import.meta.dirname, 'planned-zip-heap.ts')
    const { stdout } = await run(process.execPath, ['--expose-gc', child, ...paths])
    const planned: { paths: number; bytes: number } = JSON.parse(stdout)
    assert.ok(planned.paths >= 10_000)
    return planned.bytes / planned.paths
  })
}

describe('planZip', () => {
  it('leaves almost nothing on the heap for each file, however many there are', async () => {
    const bytes = await heapBytesPerItem(files)
    assert.ok(bytes < MAX_HEAP_BYTES_PER_FILE, `${bytes} bytes for each file`)
  })

  for (const [subject, items] of Object.entries({ symlinksIntoTheDeep, deepDirectories })) {
    it(`has the levels above a path in memory only once: ${subject}`, async () => {
      const bytes = await heapBytesPerItem(items)
      assert.ok(bytes < MAX_HEAP_BYTES_PER_DEEP_PATH, `${bytes} bytes for each path`)
    })
  }

  // In another order, the same megabyte of a ZIP could be read again for each of its symlinks.
  it('reads symlinks in the order of their data, whatever the order of the directory', async () => {
    const damaged = (name: string): ZipItem => ({ ...symlink(name, 'a'), both: { crc: 1 } })
    const bytes = buildZip([file('a'), damaged('first'), damaged('second')], { reversedDirectory: true })
    await inTemporaryDirectory(async folder => {
      await withVerifiedArtifact(bytes, folder, async artifact => {
        const zip = { window: new ReadWindow(artifact), rules: RULES, slice: new TimeSlice() }
        await assert.rejects(planZip(zip), { code: 'invalid_archive', message: /"first" does not have the CRC/ })
      })
    })
  })
})
