import assert from 'node:assert/strict'
import crypto, { createHmac } from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import { describe, it, mock } from 'node:test'
import fc from 'fast-check'
import { SignatureError } from '../../../src/core/errors.ts'
import { parseSignatureHeader, verifyHmacSignature, verifyPinnedDigest } from '../../../src/core/trust/signature.ts'

const HEX = 'ab'.repeat(32)

/** RFC 4231, section 4: HMAC-SHA-256 of the test cases with a full-length output. */
const RFC_4231 = [
  {
    name: 'test case 1',
    key: Buffer.alloc(20, 0x0b),
    data: Buffer.from('Hi There'),
    hmac: 'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7',
  },
  {
    name: 'test case 2, a key shorter than the output',
    key: Buffer.from('Jefe'),
    data: Buffer.from('what do ya want for nothing?'),
    hmac: '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843',
  },
  {
    name: 'test case 3',
    key: Buffer.alloc(20, 0xaa),
    data: Buffer.alloc(50, 0xdd),
    hmac: '773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe',
  },
  {
    name: 'test case 4',
    key: Buffer.from(Array.from({ length: 25 }, (_, index) => index + 1)),
    data: Buffer.alloc(50, 0xcd),
    hmac: '82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b',
  },
  {
    name: 'test case 6, a key longer than the block',
    key: Buffer.alloc(131, 0xaa),
    data: Buffer.from('Test Using Larger Than Block-Size Key - Hash Key First'),
    hmac: '60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54',
  },
  {
    name: 'test case 7, key and data longer than the block',
    key: Buffer.alloc(131, 0xaa),
    data: Buffer.from(
      'This is a test using a larger than block-size key and a larger than block-size data. ' +
        'The key needs to be hashed before being used by the HMAC algorithm.',
    ),
    hmac: '9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2',
  },
]

function artifactOf(data: Buffer) {
  return { fd: -1, size: data.length, sha256: crypto.hash('sha256', data) }
}

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof SignatureError && error.code === code
}

describe('verifyHmacSignature', () => {
  for (const { name, key, data, hmac } of RFC_4231) {
    it(`vouches for the vector of RFC 4231, ${name}`, () => {
      const computed = createHmac('sha256', key).update(data).digest()
      const artifact = artifactOf(data)
      assert.equal(verifyHmacSignature(artifact, computed, `hmac_sha256:${hmac}`), artifact)
      assert.equal(verifyHmacSignature(artifact, computed, `hmac_sha256:${hmac.toUpperCase()}`), artifact)
    })
  }

  it('refuses a signature with any one bit flipped', () => {
    const computed = createHmac('sha256', 'k').update('d').digest()
    for (let bit = 0; bit < 256; bit++) {
      const other = Buffer.from(computed)
      other.writeUInt8(other.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
      const header = `hmac_sha256:${other.toString('hex')}`
      assert.throws(
        () => verifyHmacSignature(artifactOf(Buffer.from('d')), computed, header),
        refusedWith('signature_mismatch'),
      )
    }
  })

  for (const length of [0, 31, 33]) {
    it(`refuses a computed digest of ${length} bytes instead of throwing another error`, () => {
      const computed = Buffer.alloc(length, 0xab)
      assert.throws(
        () => verifyHmacSignature(artifactOf(Buffer.of()), computed, `hmac_sha256:${HEX}`),
        refusedWith('signature_mismatch'),
      )
    })
  }

  it('compares in constant time', () => {
    const compare = mock.method(crypto, 'timingSafeEqual')
    syncBuiltinESMExports()
    try {
      verifyHmacSignature(artifactOf(Buffer.of()), Buffer.from(HEX, 'hex'), `hmac_sha256:${HEX}`)
      assert.equal(compare.mock.callCount(), 1)
    } finally {
      compare.mock.restore()
      syncBuiltinESMExports()
    }
  })

  it('refuses an artifact whose signature is missing, even if its digest is empty', () => {
    assert.throws(
      () => verifyHmacSignature(artifactOf(Buffer.of()), Buffer.alloc(0), undefined),
      refusedWith('missing_signature'),
    )
  })
})

describe('parseSignatureHeader', () => {
  for (const header of [`hmac_sha256:${HEX}`, `  hmac_sha256:${HEX} `, `hmac_sha256:${HEX.toUpperCase()}`]) {
    it(`reads ${JSON.stringify(header)}`, () => {
      assert.equal(parseSignatureHeader(header).toString('hex'), HEX)
    })
  }

  for (const header of [undefined, '', '   ']) {
    it(`treats ${JSON.stringify(header)} as a missing signature`, () => {
      assert.throws(() => parseSignatureHeader(header), refusedWith('missing_signature'))
    })
  }

  const malformed = {
    'a digest without an algorithm': HEX,
    'an empty algorithm': `:${HEX}`,
    'another algorithm': `hmac_sha512:${HEX}`,
    'an algorithm in capitals': `HMAC_SHA256:${HEX}`,
    'a dash in place of the underscore': `hmac-sha256:${HEX}`,
    'an equals sign in place of the colon': `hmac_sha256=${HEX}`,
    'a space after the colon': `hmac_sha256: ${HEX}`,
    'an algorithm without a digest': 'hmac_sha256:',
    'a digest with one digit too few': `hmac_sha256:${HEX.slice(1)}`,
    'a digest with one digit too many': `hmac_sha256:${HEX}0`,
    'a character that is not a hex digit': `hmac_sha256:${HEX.slice(1)}g`,
    base64: `hmac_sha256:${Buffer.from(HEX, 'hex').toString('base64')}`,
    'two signatures': `hmac_sha256:${HEX}, hmac_sha256:${HEX}`,
    'a second line': `hmac_sha256:${HEX}\nhmac_sha256:${HEX}`,
    'full-width digits': `hmac_sha256:${'\uff10'.repeat(64)}`,
  }
  for (const [name, header] of Object.entries(malformed)) {
    it(`refuses ${name}`, () => {
      assert.throws(() => parseSignatureHeader(header), refusedWith('invalid_signature_format'))
    })
  }

  it('names the input if the operator passed the signature', () => {
    const asked = /^The input signature must read hmac_sha256:.*, but found "x", .*: correct the input\.$/
    assert.throws(() => parseSignatureHeader('x', 'input'), { code: 'invalid_signature_format', message: asked })
    assert.throws(
      () => parseSignatureHeader('x'),
      /^SignatureError: The artifact's signature must read .* ask the publisher/,
    )
  })

  it('reads exactly the 32 bytes that were written, for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 32, maxLength: 32 }), bytes => {
        const header = `hmac_sha256:${Buffer.from(bytes).toString('hex')}`
        assert.deepEqual(new Uint8Array(parseSignatureHeader(header)), bytes)
      }),
    )
  })

  it('refuses any other text with a SignatureError', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string({ unit: 'binary' }),
          fc.string().map(text => `hmac_sha256:${text}`),
        ),
        header => {
          assert.throws(() => parseSignatureHeader(header), SignatureError)
        },
      ),
    )
  })
})

describe('verifyPinnedDigest', () => {
  const artifact = artifactOf(Buffer.from('d'))
  const computed = createHmac('sha256', 'k').update('d').digest()
  const verified = verifyHmacSignature(artifact, computed, `hmac_sha256:${computed.toString('hex')}`)

  it('returns the pinned artifact', () => {
    assert.equal(verifyPinnedDigest(verified, artifact.sha256), verified)
  })

  it('refuses any other artifact', () => {
    assert.throws(() => verifyPinnedDigest(verified, HEX), refusedWith('digest_mismatch'))
  })
})
