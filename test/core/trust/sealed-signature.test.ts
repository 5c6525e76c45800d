import assert from 'node:assert/strict'
import { createHash, verify } from 'node:crypto'
import { describe, it } from 'node:test'
import { SignatureError } from '../../../src/core/errors.ts'
import {
  parseSealedSignature,
  type SignedBytes,
  verifySealedSignature,
} from '../../../src/core/trust/sealed-signature.ts'
import { parseSignerKeys, type SignerKey } from '../../../src/core/trust/signer-keys.ts'
import { ED25519_VECTORS } from './ed25519-vectors.ts'

/** The order of the group. The second half of a valid signature is a number below this order. */
const GROUP_ORDER = 2n ** 252n + 27742317777372353535851937790883648493n

function sealed(bytes: Buffer, signature: Buffer) {
  const sha256 = createHash('sha256').update(bytes).digest('hex')
  return { bytes, sha256, signature: signature.toString('base64') }
}

const check = async ({ bytes, key, signature }: SignedBytes) =>
  verify(null, bytes, key, signature) ? bytes : undefined

function keyOf(hex: string): SignerKey {
  return parseSignerKeys(hex).at(0) as SignerKey
}

function base64(hex: string): string {
  return Buffer.from(hex, 'hex').toString('base64')
}

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof SignatureError && error.code === code
}

function flipped(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes)
  copy.writeUInt8(copy.readUInt8(at) ^ 1, at)
  return copy
}

function reversedHex(bytes: Buffer): string {
  return Buffer.from(bytes).reverse().toString('hex')
}

describe('verifySealedSignature', () => {
  for (const { name, publicKey, message, signature } of ED25519_VECTORS) {
    it(`vouches for the message of RFC 8032, section 7.1, ${name}, without copying it`, async () => {
      const artifact = sealed(Buffer.from(message, 'hex'), Buffer.from(signature, 'hex'))
      const verified = await verifySealedSignature(artifact, keyOf(publicKey), check)
      assert.equal(verified.bytes, artifact.bytes)
      assert.deepEqual([verified.size, verified.sha256], [artifact.bytes.length, artifact.sha256])
    })
  }

  const vector = ED25519_VECTORS[3] as (typeof ED25519_VECTORS)[number]
  const message = Buffer.from(vector.message, 'hex')
  const signature = Buffer.from(vector.signature, 'hex')
  const signer = keyOf(vector.publicKey)

  for (const [name, at] of Object.entries({ first: 0, middle: 500, last: message.length - 1 })) {
    it(`refuses an artifact whose ${name} byte was changed`, async () => {
      const artifact = sealed(flipped(message, at), signature)
      await assert.rejects(verifySealedSignature(artifact, signer, check), refusedWith('signature_mismatch'))
    })
  }

  const mismatches: Record<string, [Buffer, Buffer]> = {
    'a signature whose first half was changed': [message, flipped(signature, 0)],
    'a signature whose second half was changed': [message, flipped(signature, 32)],
    'zeros as the signature': [message, Buffer.alloc(64)],
    'an artifact without its last byte': [message.subarray(0, -1), signature],
    'an artifact with an extra byte': [Buffer.concat([message, Buffer.alloc(1)]), signature],
  }
  for (const [name, [bytes, given]] of Object.entries(mismatches)) {
    it(`refuses ${name}`, async () => {
      const attempt = verifySealedSignature(sealed(bytes, given), signer, check)
      await assert.rejects(attempt, refusedWith('signature_mismatch'))
    })
  }

  it("refuses another signer's signature", async () => {
    const other = keyOf(ED25519_VECTORS[0]?.publicKey ?? '')
    const attempt = verifySealedSignature(sealed(message, signature), other, check)
    await assert.rejects(attempt, refusedWith('signature_mismatch'))
  })

  it('refuses a second signature that anyone can derive from a valid one', async () => {
    const derived = (BigInt(`0x${reversedHex(signature.subarray(32))}`) + GROUP_ORDER).toString(16).padStart(64, '0')
    const malleated = Buffer.concat([signature.subarray(0, 32), Buffer.from(derived, 'hex').reverse()])
    const attempt = verifySealedSignature(sealed(message, malleated), signer, check)
    await assert.rejects(attempt, refusedWith('signature_mismatch'))
  })
})

describe('parseSealedSignature', () => {
  const good = base64(ED25519_VECTORS[0]?.signature ?? '')
  const refused: { name: string; text: string | undefined; code: string }[] = [
    { name: 'a missing signature', text: undefined, code: 'missing_signature' },
    { name: 'an empty signature', text: '', code: 'missing_signature' },
    { name: '63 bytes', text: Buffer.alloc(63, 1).toString('base64'), code: 'invalid_signature_format' },
    { name: '65 bytes', text: Buffer.alloc(65, 1).toString('base64'), code: 'invalid_signature_format' },
    { name: 'hex', text: Buffer.from(good, 'base64').toString('hex'), code: 'invalid_signature_format' },
    { name: 'missing padding', text: good.replace(/=+$/, ''), code: 'invalid_signature_format' },
    { name: 'the URL alphabet', text: `${'_'.repeat(86)}==`, code: 'invalid_signature_format' },
    { name: 'stray bits in the last character', text: good.replace(/.==$/, 'x=='), code: 'invalid_signature_format' },
    { name: 'a line break at the end', text: `${good}\n`, code: 'invalid_signature_format' },
  ]
  for (const { name, text, code } of refused) {
    it(`refuses ${name}`, () => assert.throws(() => parseSealedSignature(text), refusedWith(code)))
  }

  it('reads 64 bytes', () => assert.equal(parseSealedSignature(good).toString('base64'), good))
})
