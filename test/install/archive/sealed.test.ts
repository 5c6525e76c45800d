import assert from 'node:assert/strict'
import { createCipheriv, generateKeyPairSync, sign } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { constants, zstdCompressSync } from 'node:zlib'
import { ArchiveError, ArtifactError } from '../../../src/core/errors.ts'
import { checkEd25519, freeArtifact, unpackZstd, unseal } from '../../../src/install/archive/sealed.ts'
import { DEK, encrypt, openedZstd, verifiedBytes } from './artifacts.ts'

/** All values but the name are hex. There is no associated data. */
interface GcmVector {
  readonly name: string
  readonly key: string
  readonly nonce: string
  readonly plaintext: string
  readonly ciphertext: string
  readonly tag: string
}

const VECTORS: readonly GcmVector[] = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../vectors/aes-256-gcm.json'), 'utf8'),
)
const MIB = 1024 * 1024

function isUndecryptable(error: unknown): boolean {
  return error instanceof ArtifactError && error.code === 'decryption_failed'
}

function flipped(bytes: Buffer, at: number): Buffer {
  bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at)
  return bytes
}

function isWiped(bytes: Buffer): boolean {
  return bytes.every(byte => byte === 0)
}

describe('unseal', () => {
  for (const { name, key, nonce, plaintext, ciphertext, tag } of VECTORS) {
    it(`returns the known answer: ${name}`, async () => {
      const artifact = await verifiedBytes(Buffer.from(nonce + ciphertext + tag, 'hex'))
      const { zstd } = await unseal(artifact, Buffer.from(key, 'hex'))
      assert.equal(zstd.toString('hex'), plaintext)
    })

    for (const tagBytes of [4, 8, 12, 15]) {
      it(`refuses a tag cut to ${tagBytes} bytes: ${name}`, async () => {
        const cut = Buffer.from(nonce + ciphertext + tag.slice(0, 2 * tagBytes), 'hex')
        await assert.rejects(unseal(await verifiedBytes(cut), Buffer.from(key, 'hex')), isUndecryptable)
      })
    }
  }

  for (const size of [1, MIB - 1, MIB, MIB + 1, 5 * MIB + 3]) {
    it(`decrypts ${size} bytes in the buffer of the sealed bytes`, async () => {
      const plain = Buffer.alloc(size, 'sealed and opened again, ')
      const artifact = await verifiedBytes(encrypt(plain))
      const { zstd } = await unseal(artifact, DEK)
      assert.ok(zstd.equals(plain))
      assert.equal(zstd.buffer, artifact.bytes.buffer)
    })
  }

  const changed: Record<string, (sealed: Buffer) => Buffer> = {
    'a changed nonce': sealed => flipped(sealed, 0),
    'a changed first byte': sealed => flipped(sealed, 12),
    'a changed last byte': sealed => flipped(sealed, sealed.length - 17),
    'a changed tag': sealed => flipped(sealed, sealed.length - 1),
    'one byte less': sealed => sealed.subarray(0, -1),
    'one byte more': sealed => Buffer.concat([sealed, Buffer.alloc(1)]),
    'only a nonce and a tag': () => encrypt(Buffer.alloc(0)),
    'one byte less than a nonce and a tag': () => encrypt(Buffer.alloc(0)).subarray(1),
    'an empty artifact': () => Buffer.alloc(0),
  }
  for (const [name, change] of Object.entries(changed)) {
    it(`refuses ${name} and wipes the buffer`, async () => {
      const artifact = await verifiedBytes(change(encrypt(Buffer.alloc(2 * MIB, 'secret'))))
      await assert.rejects(unseal(artifact, DEK), isUndecryptable)
      assert.ok(isWiped(artifact.bytes))
    })
  }

  const keys = {
    'another key': Buffer.alloc(32, 8),
    '16 bytes': DEK.subarray(16),
    '33 bytes': Buffer.alloc(33, 7),
    'an empty key': Buffer.alloc(0),
  }
  for (const [name, dek] of Object.entries(keys)) {
    it(`refuses ${name} as the key and wipes the buffer`, async () => {
      const artifact = await verifiedBytes(encrypt(Buffer.alloc(2 * MIB, 'secret')))
      await assert.rejects(unseal(artifact, dek), isUndecryptable)
      assert.ok(isWiped(artifact.bytes))
    })
  }

  it('leaves no bytes of an artifact that is discarded', async () => {
    const artifact = await verifiedBytes(encrypt(Buffer.alloc(2 * MIB, 'secret')))
    const opened = await unseal(artifact, DEK)
    freeArtifact(opened)
    assert.deepEqual([opened.zstd.length, artifact.bytes.length], [0, 0])
  })

  it('opens an artifact only once', async () => {
    const artifact = await verifiedBytes(encrypt(Buffer.from('sealed')))
    await unseal(artifact, DEK)
    await assert.rejects(unseal(artifact, DEK), isUndecryptable)
  })

  it('throws the reason of a signal that is already aborted, and wipes the buffer', async () => {
    const artifact = await verifiedBytes(encrypt(Buffer.from('secret')))
    const reason = new Error('cancelled by the runner')
    await assert.rejects(unseal(artifact, DEK, AbortSignal.abort(reason)), reason)
    assert.ok(isWiped(artifact.bytes))
  })
})

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
    await assert.rejects(
      async () => {
        for await (const _ of unpackZstd(opened, LIMITS)) pieces++
      },
      { code: 'archive_too_large' },
    )
    assert.equal(pieces, 0)
  })

  it('stops a bomb long before all of it is unpacked', async () => {
    const opened = await openedZstd(frame(Buffer.alloc(500 * MIB), withoutSize))
    let bytes = 0
    await assert.rejects(
      async () => {
        const strict = { maxExtractedBytes: 20 * MIB, maxEntries: 1 }
        for await (const piece of unpackZstd(opened, strict)) bytes += piece.length
      },
      { code: 'archive_too_large' },
    )
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

const { privateKey, publicKey } = generateKeyPairSync('ed25519')
const SIZES = { few: 1000, many: 9 * 1024 * 1024 }

function bytesOfTheirOwn(size: number): Buffer {
  return Buffer.from(new ArrayBuffer(size)).fill('sealed')
}

describe('checkEd25519', () => {
  for (const [name, size] of Object.entries(SIZES)) {
    it(`returns ${name} bytes with a valid signature, and none with any other signature`, async () => {
      const signature = sign(null, bytesOfTheirOwn(size), privateKey)
      const checked = await checkEd25519({ bytes: bytesOfTheirOwn(size), key: publicKey, signature })
      assert.ok(checked?.equals(bytesOfTheirOwn(size)))
      const changed = bytesOfTheirOwn(size)
      changed.writeUInt8(0, size - 1)
      assert.equal(await checkEd25519({ bytes: changed, key: publicKey, signature }), undefined)
    })

    it(`keeps no second copy of ${name} bytes`, async () => {
      const bytes = bytesOfTheirOwn(size)
      const signature = sign(null, bytes, privateKey)
      const checked = await checkEd25519({ bytes, key: publicKey, signature })
      assert.ok(checked === bytes || bytes.length === 0)
    })

    it(`ends a cancelled check of ${name} bytes with the reason`, async () => {
      const bytes = bytesOfTheirOwn(size)
      const controller = new AbortController()
      const checked = checkEd25519(
        { bytes, key: publicKey, signature: sign(null, bytes, privateKey) },
        controller.signal,
      )
      controller.abort(new Error('cancelled'))
      if (size === SIZES.many) await assert.rejects(checked, /cancelled/)
      await assert.rejects(
        checkEd25519({ bytes, key: publicKey, signature: Buffer.alloc(64) }, controller.signal),
        /cancelled/,
      )
    })
  }

  it('leaves the event loop free while it checks many bytes', async () => {
    const bytes = bytesOfTheirOwn(256 * 1024 * 1024)
    let ticks = 0
    const timer = setInterval(() => ticks++, 5)
    await checkEd25519({ bytes, key: publicKey, signature: Buffer.alloc(64) })
    clearInterval(timer)
    assert.ok(ticks > 5, `the event loop turned only ${ticks} times`)
  })
})
