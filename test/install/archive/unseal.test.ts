import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { ArtifactError } from '../../../src/core/errors.ts'
import { discard, unseal } from '../../../src/install/archive/unseal.ts'
import { DEK, encrypt, verifiedBytes } from './sealed-artifact.ts'

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
    discard(opened)
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
