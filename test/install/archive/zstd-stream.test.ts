import assert from 'node:assert/strict'
import { createCipheriv } from 'node:crypto'
import { describe, it } from 'node:test'
import { constants, zstdCompressSync } from 'node:zlib'
import { ArchiveError } from '../../../src/core/errors.ts'
import { unpackZstd } from '../../../src/install/archive/zstd-stream.ts'
import { openedZstd } from './sealed-artifact.ts'

const MIB = 1024 * 1024
const LIMITS = { maxExtractedBytes: 8 * MIB, maxEntries: 1 }
/** More bytes than the limits allow, even with the overhead of a tar. */
const TOO_MUCH = LIMITS.maxExtractedBytes + 2 * MIB
const TEXT = Buffer.concat([noise(20_000), Buffer.alloc(3 * MIB, 'a tar would be here, ')])

/** Bytes that zstd cannot compress. */
function noise(size: number): Buffer {
  return createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(size))
}

function frame(data: Buffer, params: Record<number, number> = {}): Buffer {
  return zstdCompressSync(data, { params })
}

const withoutSize = { [constants.ZSTD_c_contentSizeFlag]: 0 }
const withChecksum = { [constants.ZSTD_c_checksumFlag]: 1 }

async function unpack(zstd: Buffer): Promise<Buffer> {
  const pieces: Buffer[] = []
  for await (const piece of unpackZstd(await openedZstd(zstd), LIMITS)) pieces.push(Buffer.from(piece))
  return Buffer.concat(pieces)
}

function changed(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes)
  copy.writeUInt8(copy.readUInt8(at) ^ 0x55, at)
  return copy
}

/** A frame whose header declares one byte more than the frame contains. */
function lyingFrame(): Buffer {
  const honest = frame(Buffer.alloc(200, 'abc'))
  assert.equal(honest.readUInt8(5), 200)
  const lying = Buffer.from(honest)
  lying.writeUInt8(201, 5)
  return lying
}

const skippable = Buffer.from('502a4d1804000000deadbeef', 'hex')

const accepted: { name: string; zstd: () => Buffer; plain: Buffer }[] = [
  { name: 'a frame with its content size', zstd: () => frame(TEXT), plain: TEXT },
  { name: 'a frame without its content size', zstd: () => frame(TEXT, withoutSize), plain: TEXT },
  { name: 'a frame with a checksum', zstd: () => frame(TEXT, withChecksum), plain: TEXT },
  { name: 'incompressible data', zstd: () => frame(noise(5 * MIB)), plain: noise(5 * MIB) },
  {
    name: 'several frames',
    zstd: () => Buffer.concat([frame(TEXT), skippable, frame(TEXT)]),
    plain: Buffer.concat([TEXT, TEXT]),
  },
  {
    name: 'an empty frame between others',
    zstd: () => Buffer.concat([frame(TEXT), frame(Buffer.alloc(0)), frame(TEXT)]),
    plain: Buffer.concat([TEXT, TEXT]),
  },
]

const refused: { name: string; zstd: () => Buffer; code: string }[] = [
  {
    name: 'a wrong checksum',
    zstd: () => changed(frame(TEXT, withChecksum), frame(TEXT, withChecksum).length - 1),
    code: 'invalid_archive',
  },
  { name: 'damaged blocks', zstd: () => changed(frame(TEXT, withChecksum), 40), code: 'invalid_archive' },
  { name: 'fewer bytes than a frame declares', zstd: lyingFrame, code: 'invalid_archive' },
  { name: 'a frame that is cut off', zstd: () => frame(TEXT).subarray(0, -5), code: 'invalid_archive' },
  {
    name: 'a second frame that is cut off',
    zstd: () => Buffer.concat([frame(TEXT), frame(TEXT).subarray(0, -5)]),
    code: 'invalid_archive',
  },
  {
    name: 'bytes after the last frame',
    zstd: () => Buffer.concat([frame(TEXT), Buffer.from('more')]),
    code: 'invalid_archive',
  },
  { name: 'more declared bytes than the limits allow', zstd: () => frame(noise(TOO_MUCH)), code: 'archive_too_large' },
  {
    name: 'more undeclared bytes than the limits allow',
    zstd: () => frame(noise(TOO_MUCH), withoutSize),
    code: 'archive_too_large',
  },
  {
    name: 'more bytes in several frames than the limits allow',
    zstd: () => Buffer.concat([frame(noise(TOO_MUCH / 2)), frame(noise(TOO_MUCH))]),
    code: 'archive_too_large',
  },
  {
    name: 'more zeros than the limits allow',
    zstd: () => frame(Buffer.alloc(TOO_MUCH), withoutSize),
    code: 'archive_too_large',
  },
]

describe('unpackZstd', () => {
  for (const { name, zstd, plain } of accepted) {
    it(`unpacks ${name}`, async () => assert.ok((await unpack(zstd())).equals(plain)))
  }

  for (const { name, zstd, code } of refused) {
    it(`refuses ${name}`, async () => {
      await assert.rejects(unpack(zstd()), error => error instanceof ArchiveError && error.code === code)
    })
  }

  it('unpacks nothing if the frames together declare too much', async () => {
    const opened = await openedZstd(Buffer.concat([frame(noise(TOO_MUCH / 2)), frame(noise(TOO_MUCH))]))
    let pieces = 0
    await assert.rejects(async () => {
      for await (const _ of unpackZstd(opened, LIMITS)) pieces++
    })
    assert.equal(pieces, 0)
  })

  it('stops a bomb long before all of it is unpacked', async () => {
    const opened = await openedZstd(frame(Buffer.alloc(500 * MIB), withoutSize))
    let bytes = 0
    await assert.rejects(async () => {
      const strict = { maxExtractedBytes: 20 * MIB, maxEntries: 1 }
      for await (const piece of unpackZstd(opened, strict)) bytes += piece.length
    })
    assert.ok(bytes <= 22 * MIB)
  })

  it('unpacks any number of zeros within the limits', async () => {
    const opened = await openedZstd(frame(Buffer.alloc(30 * MIB), withoutSize))
    assert.ok(opened.zstd.length * 1000 < 30 * MIB)
    let bytes = 0
    for await (const piece of unpackZstd(opened, { maxExtractedBytes: 30 * MIB, maxEntries: 1 })) bytes += piece.length
    assert.equal(bytes, 30 * MIB)
  })

  it('refuses to keep more than 32 MiB of a window in memory', async () => {
    const params = { ...withoutSize, [constants.ZSTD_c_windowLog]: 27 }
    const opened = await openedZstd(frame(Buffer.concat([noise(MIB), Buffer.alloc(40 * MIB, noise(5000))]), params))
    let bytes = 0
    await assert.rejects(
      async () => {
        const generous = { maxExtractedBytes: 1000 * MIB, maxEntries: 1 }
        for await (const piece of unpackZstd(opened, generous)) bytes += piece.length
      },
      { code: 'archive_too_large' },
    )
    assert.ok(bytes <= 32 * MIB)
  })

  it('yields the same bytes each time, and can be abandoned in the middle', async () => {
    const opened = await openedZstd(frame(TEXT))
    for await (const piece of unpackZstd(opened, LIMITS)) {
      assert.ok(piece.length > 0)
      break
    }
    for (let time = 0; time < 2; time++) {
      const pieces: Buffer[] = []
      for await (const piece of unpackZstd(opened, LIMITS)) pieces.push(Buffer.from(piece))
      assert.ok(Buffer.concat(pieces).equals(TEXT))
    }
  })
})
