import assert from 'node:assert/strict'
import { createCipheriv } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { constants, crc32, deflateRawSync } from 'node:zlib'
import { ArchiveError } from '../../../src/core/errors.ts'
import { DEFAULT_MAX_ENTRIES, DEFAULT_MAX_EXTRACTED_BYTES } from '../../../src/core/identifiers.ts'
import { ReadWindow } from '../../../src/install/archive/pieces.ts'
import { BatchInflater, canInflateTogether, readInBatches } from '../../../src/install/archive/zip-extract.ts'
import type { LocatedZipEntry, ZipPacking } from '../../../src/install/archive/zip-listing.ts'
import { buildZip, file, type ZipItem } from '../../archives/zip-builder.ts'
import { extractZip, inTemporaryDirectory, withVerifiedArtifact } from './artifacts.ts'

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
      // The data need not be a valid deflate stream: it only has to be read.
      const packing = { method: 'deflated' as const, size: 10, packedSize: 200_000, crc: 0, headerOffset: 0 }
      const entries = Array.from({ length: 12 }, (_, at) => ({ ...packing, name: `f${at}`, dataOffset: at * 200_000 }))
      const files = entries.map(({ name, size }, entry) => ({ path: name, mode: 0o644 as const, size, entry }))
      truncateSync(path, 700_000)
      const window = new ReadWindow({ fd, size: NOISE.length })
      const read = async (): Promise<void> => {
        for await (const _ of readInBatches({ window, entries }, files)) await setImmediate()
      }
      await assert.rejects(read(), { code: 'invalid_archive' })
      closeSync(fd)
    })
  })
})

interface Packed {
  packed: Buffer
  size: number
  crc: number
}

const MEMBER_HEADER = Buffer.from([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0])

function pack(data: Buffer): Packed {
  return { packed: deflateRawSync(data), size: data.length, crc: crc32(data) | 0 }
}

/** The end of a gzip member: the CRC and the size of its data. */
function trailer(data: Buffer): Buffer {
  const bytes = Buffer.alloc(8)
  bytes.writeUInt32LE(crc32(data), 0)
  bytes.writeUInt32LE(data.length, 4)
  return bytes
}

/** The header of a deflate block that is not the last one and stores the next `length` bytes uncompressed. */
function storedBlock(length: number): Buffer {
  const bytes = Buffer.alloc(5)
  bytes.writeUInt16LE(length, 1)
  bytes.writeUInt16LE(~length & 0xffff, 3)
  return bytes
}

/** Inflates entries whose packed bytes are in one file, with other bytes before each of them. */
async function inflate(items: readonly Packed[]): Promise<Buffer | undefined> {
  return inTemporaryDirectory(async directory => {
    const path = join(directory, 'archive')
    const between = Buffer.from('between')
    writeFileSync(path, Buffer.concat(items.flatMap(({ packed }) => [between, packed])))
    let end = 0
    const entries: LocatedZipEntry[] = []
    for (const [number, { packed, size, crc }] of items.entries()) {
      const packing = { method: 'deflated' as const, size, packedSize: packed.length }
      assert.ok(canInflateTogether(packing))
      const dataOffset = end + between.length
      entries.push({ ...packing, name: `file-${number}`, crc: crc | 0, headerOffset: 0, dataOffset })
      end += between.length + packed.length
    }
    const fd = openSync(path, 'r')
    try {
      const bytes = await new BatchInflater({ window: new ReadWindow({ fd, size: end }), entries }).inflate(
        items.keys(),
      )
      return bytes === undefined ? undefined : Buffer.from(bytes)
    } finally {
      closeSync(fd)
    }
  })
}

const first = Buffer.from('the first of three files')
const second = Buffer.from('the second of three files, which is the longest')
const third = Buffer.from('the third')

/** An empty member: it adds nothing to the sizes, but another tool would mistake it for the whole entry. */
const hiddenMember = Buffer.concat([deflateRawSync(Buffer.alloc(0)), trailer(Buffer.alloc(0)), MEMBER_HEADER])
const zeros = Buffer.alloc(5)

/** Two entries. The first ends in a block that takes its own trailer and the header of the second as data. */
function swallowing(data: Buffer, end: Buffer): Packed[] {
  const taken = Buffer.concat([data, trailer(data), MEMBER_HEADER])
  const whole = Buffer.concat([taken, end])
  const start = Buffer.concat([storedBlock(taken.length), data])
  return [
    { packed: start, size: data.length, crc: crc32(data) | 0 },
    { packed: deflateRawSync(end), size: whole.length, crc: crc32(whole) | 0 },
  ]
}

const refused: Record<string, Packed[]> = {
  'another CRC': [pack(first), { ...pack(second), crc: crc32(first) | 0 }, pack(third)],
  'a byte more than is declared': [pack(first), { ...pack(second), size: second.length - 1 }],
  'a byte less than is declared': [pack(first), { ...pack(second), size: second.length + 1 }],
  'sizes that are right only together': [
    { ...pack(first), size: first.length + 1 },
    { ...pack(second), size: second.length - 1 },
  ],
  'bytes after its packed data': [
    pack(first),
    { ...pack(second), packed: Buffer.concat([pack(second).packed, third]) },
  ],
  'a trailer and zeros after its packed data': [
    pack(first),
    { ...pack(second), packed: Buffer.concat([pack(second).packed, trailer(second), zeros]) },
  ],
  'an empty member before its packed data': [
    pack(first),
    { ...pack(second), packed: Buffer.concat([hiddenMember, pack(second).packed]) },
  ],
  'packed data that continues into the next entry': swallowing(first, third),
  'packed data that does not end': [pack(first), { ...pack(second), packed: pack(second).packed.subarray(0, -1) }],
  'packed data that is not DEFLATE': [pack(first), { ...pack(second), packed: Buffer.from([0xff, 0xff]) }],
  'far more than is declared': [pack(first), { ...pack(Buffer.alloc(4_000_000)), size: 10 }],
}

describe('BatchInflater', () => {
  it('returns the bytes of the entries, one after the other', async () => {
    const bytes = await inflate([pack(first), pack(second), pack(third)])
    assert.deepEqual(bytes, Buffer.concat([first, second, third]))
  })

  it('returns a single byte', async () => {
    assert.deepEqual(await inflate([pack(Buffer.from('a'))]), Buffer.from('a'))
  })

  for (const [name, items] of Object.entries(refused)) {
    it(`does not vouch for an entry with ${name}`, async () => {
      assert.equal(await inflate(items), undefined)
    })
  }

  it('does not vouch for packed data that could be read as another member', async () => {
    const level = { level: constants.Z_NO_COMPRESSION }
    const packed = deflateRawSync(MEMBER_HEADER, level)
    assert.ok(packed.includes(MEMBER_HEADER))
    const item = { packed, size: MEMBER_HEADER.length, crc: crc32(MEMBER_HEADER) | 0 }
    assert.equal(await inflate([pack(first), item]), undefined)
  })

  it('returns incompressible bytes', async () => {
    const noise = createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(200_000))
    assert.deepEqual(await inflate([pack(noise), pack(first)]), Buffer.concat([noise, first]))
  })
})

describe('canInflateTogether', () => {
  const entry = { method: 'deflated', size: 1 } as ZipPacking
  const cases: [string, ZipPacking, boolean][] = [
    ['takes a deflated entry', entry, true],
    ['leaves out a stored one', { ...entry, method: 'stored' }, false],
    ['leaves out an empty one, which could hide behind the next', { ...entry, size: 0 }, false],
  ]
  for (const [name, candidate, expected] of cases) {
    it(name, () => assert.equal(canInflateTogether(candidate), expected))
  }
})
