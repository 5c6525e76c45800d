import assert from 'node:assert/strict'
import { createCipheriv } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { deflateRawSync } from 'node:zlib'
import { PlannedFiles } from '../../../../src/core/archive/planned-files.ts'
import { ArchiveError } from '../../../../src/core/errors.ts'
import { DEFAULT_MAX_ENTRIES, DEFAULT_MAX_EXTRACTED_BYTES } from '../../../../src/core/limits.ts'
import { ReadWindow } from '../../../../src/install/archive/read-window.ts'
import { extractZip } from '../../../../src/install/archive/zip/extract-zip.ts'
import { ZipEntries } from '../../../../src/install/archive/zip/zip-entries.ts'
import { readInBatches } from '../../../../src/install/archive/zip/zip-small-files.ts'
import { buildZip, file, type ZipItem } from '../../../archives/zip-builder.ts'
import { inTemporaryDirectory, withVerifiedArtifact } from '../verified-artifact.ts'

const LIMITS = { maxExtractedBytes: DEFAULT_MAX_EXTRACTED_BYTES, maxEntries: DEFAULT_MAX_ENTRIES }
/** The header of a gzip member. */
const MEMBER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0])
/** Bytes that compression hardly reduces, the same in every run. */
const NOISE = createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(3_000_000))

/** Extracts a ZIP of these items, and returns their contents by name. */
async function extract(items: readonly ZipItem[]): Promise<Map<string, Buffer>> {
  return inTemporaryDirectory(async directory => {
    const target = join(directory, 'target')
    mkdirSync(target)
    await withVerifiedArtifact(buildZip(items), directory, artifact => extractZip(artifact, { target, limits: LIMITS }))
    return new Map(items.map(({ name }) => [name, readFileSync(join(target, name))]))
  })
}

function contents(items: readonly ZipItem[]): Map<string, Buffer> {
  return new Map(items.map(({ name, data = '' }) => [name, Buffer.from(data)]))
}

/** Files of many sizes, up to the largest that counts as small. */
function manyFiles(): ZipItem[] {
  const sizes = [0, 1, 2, 511, 512, 4095, 65_535, 262_126, 262_144, 300_000, 1_048_576]
  const kinds: ((size: number) => Buffer | string)[] = [
    size => 'text '.repeat(size / 5),
    size => NOISE.subarray(0, size),
  ]
  return sizes.flatMap(size => kinds.map((data, kind) => file(`file-${size}-${kind}`, data(size))))
}

const zips: Record<string, ZipItem[]> = {
  'files of several batches': manyFiles(),
  'many small files': Array.from({ length: 2000 }, (_, at) => file(`f${at}`, NOISE.subarray(at, at + 400))),
  'stored files between others': manyFiles().map((item, at) => ({ ...item, stored: at % 3 === 0 })),
  'files that contain packed files': [
    file('a'),
    { ...file('b', MEMBER), packed: deflateRawSync(MEMBER, { level: 0 }) },
    file('c'),
  ],
}

describe('readInBatches', () => {
  for (const [name, items] of Object.entries(zips)) {
    it(`returns the bytes of ${name}`, async () => {
      assert.deepEqual(await extract(items), contents(items))
    })
  }

  it('names the file that is damaged, and no other file of its batch', async () => {
    const items = [file('good'), { ...file('bad'), both: { crc: 1 } }, file('last')]
    await assert.rejects(extract(items), (error: unknown) => {
      assert.ok(error instanceof ArchiveError && error.code === 'invalid_archive')
      assert.match(error.message, /"bad"/)
      return true
    })
  })

  it('throws a read-ahead error only when the files are used', async () => {
    await inTemporaryDirectory(async directory => {
      const path = join(directory, 'archive')
      writeFileSync(path, NOISE)
      const fd = openSync(path, 'r')
      const entries = new ZipEntries()
      for (let at = 0; at < 12; at++) addEntryAt(entries, at * 200_000)
      truncateSync(path, 700_000)
      const window = new ReadWindow({ fd, size: NOISE.length })
      const read = async (): Promise<void> => {
        for await (const _ of readInBatches({ window, entries }, allFiles(entries))) await setImmediate()
      }
      await assert.rejects(read(), { code: 'invalid_archive' })
      closeSync(fd)
    })
  })
})

/** Adds an entry whose data need not be a valid deflate stream: the data only has to be read. */
function addEntryAt(entries: ZipEntries, dataOffset: number): void {
  const packing = { method: 'deflated' as const, size: 10, packedSize: 200_000 }
  entries.add({ ...packing, name: `f${dataOffset}`, crc: 0, headerOffset: 0 })
  entries.locate(entries.length - 1, dataOffset)
}

function allFiles({ length }: ZipEntries): PlannedFiles {
  const at = (place: number) => ({ path: `f${place}`, mode: 0o644 as const, size: 10, entry: place, place })
  return new PlannedFiles({ length, at, entryAt: place => place, sizeAt: () => 10 })
}
