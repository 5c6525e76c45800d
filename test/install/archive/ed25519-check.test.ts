import assert from 'node:assert/strict'
import { generateKeyPairSync, sign } from 'node:crypto'
import { describe, it } from 'node:test'
import { checkEd25519 } from '../../../src/install/archive/ed25519-check.ts'

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
