import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { constants, zstdCompressSync } from 'node:zlib'
import fc from 'fast-check'
import { parseZstdFrames, verifyWindowUse } from '../../../src/core/archive/zstd-frames.ts'
import { ArchiveError } from '../../../src/core/errors.ts'

const TEXT = Buffer.from('the quick brown fox '.repeat(500))
const MAGIC = '28b52ffd'

function frame(options: Record<number, number | boolean> = {}, data: Buffer = TEXT): Buffer {
  return zstdCompressSync(data, { params: options })
}

function skippable(magic: string, body: string): Buffer {
  const size = Buffer.alloc(4)
  size.writeUInt32LE(body.length)
  return Buffer.concat([Buffer.from(magic, 'hex'), size, Buffer.from(body)])
}

function hex(...parts: string[]): Buffer {
  return Buffer.from(parts.join(''), 'hex')
}

const GOOD = frame()
const WITH_CHECKSUM = frame({ [constants.ZSTD_c_checksumFlag]: 1 })
const WITHOUT_SIZE = frame({ [constants.ZSTD_c_contentSizeFlag]: 0 })
/** An empty raw block that is the last one. */
const LAST_BLOCK = '010000'

const accepted: { name: string; bytes: Buffer; contents: (number | null)[] }[] = [
  { name: 'a frame with its content size', bytes: GOOD, contents: [TEXT.length] },
  { name: 'a frame without its content size', bytes: WITHOUT_SIZE, contents: [null] },
  { name: 'a frame with a checksum', bytes: WITH_CHECKSUM, contents: [TEXT.length] },
  {
    name: 'several frames',
    bytes: Buffer.concat([GOOD, WITH_CHECKSUM, WITHOUT_SIZE]),
    contents: [TEXT.length, TEXT.length, null],
  },
  { name: 'a content size of one byte', bytes: frame({}, Buffer.from('abc')), contents: [3] },
  {
    name: 'a content size of eight bytes',
    bytes: hex(MAGIC, 'e0', '0000000200000000', LAST_BLOCK),
    contents: [2 ** 25],
  },
  { name: 'the largest window', bytes: hex(MAGIC, '00', '88', LAST_BLOCK), contents: [null] },
  { name: 'a dictionary id of 0', bytes: hex(MAGIC, '01', '00', '00', LAST_BLOCK), contents: [null] },
  {
    name: 'a frame between skippable ones',
    bytes: Buffer.concat([skippable('502a4d18', 'x'), GOOD, skippable('5f2a4d18', '')]),
    contents: [TEXT.length],
  },
]

const refused: { name: string; bytes: Buffer; code: string }[] = [
  { name: 'an empty file', bytes: Buffer.alloc(0), code: 'invalid_archive' },
  { name: 'another format', bytes: Buffer.from('PK\u0003\u0004 and more'), code: 'invalid_archive' },
  { name: 'only a skippable frame', bytes: skippable('502a4d18', 'abc'), code: 'invalid_archive' },
  { name: 'bytes after a frame', bytes: Buffer.concat([GOOD, Buffer.from('evil')]), code: 'invalid_archive' },
  { name: 'one byte after a frame', bytes: Buffer.concat([GOOD, Buffer.alloc(1)]), code: 'invalid_archive' },
  { name: 'zeros after a frame', bytes: Buffer.concat([GOOD, Buffer.alloc(512)]), code: 'invalid_archive' },
  {
    name: 'a skippable frame that ends in the middle',
    bytes: Buffer.concat([GOOD, skippable('502a4d18', 'abc').subarray(0, -1)]),
    code: 'invalid_archive',
  },
  { name: 'a reserved bit', bytes: hex(MAGIC, '08', '00', LAST_BLOCK), code: 'invalid_archive' },
  { name: 'a dictionary', bytes: hex(MAGIC, '01', '00', '07', LAST_BLOCK), code: 'invalid_archive' },
  { name: 'a reserved block type', bytes: hex(MAGIC, '00', '00', '070000'), code: 'invalid_archive' },
  {
    name: 'a block above 128 KiB',
    bytes: Buffer.concat([hex(MAGIC, '00', '80', '090010'), Buffer.alloc(131_073)]),
    code: 'invalid_archive',
  },
  { name: 'a window above 128 MiB', bytes: hex(MAGIC, '00', '89', LAST_BLOCK), code: 'archive_too_large' },
  { name: 'a window of terabytes', bytes: hex(MAGIC, '00', 'ff', LAST_BLOCK), code: 'archive_too_large' },
  {
    name: 'a single segment above 128 MiB',
    bytes: hex(MAGIC, 'a0', '01000008', LAST_BLOCK),
    code: 'archive_too_large',
  },
  {
    name: 'more than 100 frames in a few bytes',
    bytes: Buffer.concat(Array(101).fill(hex(MAGIC, '2000', LAST_BLOCK))),
    code: 'archive_too_large',
  },
  {
    name: 'more than 100 skippable frames in a few bytes',
    bytes: Buffer.concat(Array(101).fill(skippable('502a4d18', ''))),
    code: 'archive_too_large',
  },
  {
    name: 'more than 1,000,000 blocks',
    bytes: Buffer.concat([hex(MAGIC, '0000'), Buffer.alloc(3_000_003)]),
    code: 'archive_too_large',
  },
]

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof ArchiveError && error.code === code
}

describe('parseZstdFrames', () => {
  for (const { name, bytes, contents } of accepted) {
    it(`finds ${name}`, () =>
      assert.deepEqual(
        parseZstdFrames(bytes).map(({ contentBytes }) => contentBytes),
        contents,
      ))
  }

  for (const { name, bytes, code } of refused) {
    it(`refuses ${name}`, () => assert.throws(() => parseZstdFrames(bytes), refusedWith(code)))
  }

  for (const [name, whole] of Object.entries({
    frame: GOOD,
    'frame with a checksum': WITH_CHECKSUM,
    'frame without its size': WITHOUT_SIZE,
  })) {
    it(`refuses an incomplete ${name}`, () => {
      for (let length = 0; length < whole.length; length++) {
        assert.throws(() => parseZstdFrames(whole.subarray(0, length)), refusedWith('invalid_archive'))
      }
    })
  }

  it('finds the start and the end of every frame', () => {
    const flags = fc.record({ checksum: fc.nat(1), size: fc.nat(1), level: fc.integer({ min: 1, max: 9 }) })
    const data = fc.uint8Array({ maxLength: 4000 })
    fc.assert(
      fc.property(fc.array(fc.tuple(flags, data), { minLength: 1, maxLength: 5 }), items => {
        const frames = items.map(([{ checksum, size, level }, bytes]) => {
          const { ZSTD_c_checksumFlag, ZSTD_c_contentSizeFlag, ZSTD_c_compressionLevel } = constants
          const params = {
            [ZSTD_c_checksumFlag]: checksum,
            [ZSTD_c_contentSizeFlag]: size,
            [ZSTD_c_compressionLevel]: level,
          }
          return frame(params, Buffer.from(bytes))
        })
        const lengths = parseZstdFrames(Buffer.concat(frames)).map(({ start, end }) => end - start)
        assert.deepEqual(
          lengths,
          frames.map(({ length }) => length),
        )
      }),
      { numRuns: 100 },
    )
  })

  it('accepts any bytes or refuses them with an ArchiveError', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 60 }), bytes => {
        const attempt = () => parseZstdFrames(Buffer.concat([hex(MAGIC), bytes]))
        try {
          attempt()
        } catch (error) {
          assert.ok(error instanceof ArchiveError)
        }
      }),
      { numRuns: 500 },
    )
  })
})

describe('verifyWindowUse', () => {
  const [small, large] = ['78', '88'].map(window => parseZstdFrames(hex(MAGIC, '00', window, LAST_BLOCK))[0])
  const MIB = 1024 * 1024

  it('lets frames use windows of up to 32 MiB, however much they unpack to', () => {
    assert.equal(small?.windowBytes, 32 * MIB)
    if (small !== undefined) verifyWindowUse(small, 2000 * MIB)
  })

  it('lets a frame with a larger window unpack to 32 MiB and no more', () => {
    assert.ok(large !== undefined)
    verifyWindowUse(large, 32 * MIB)
    assert.throws(() => verifyWindowUse(large, 32 * MIB + 1), refusedWith('archive_too_large'))
  })
})
