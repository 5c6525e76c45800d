import assert from 'node:assert/strict'
import crypto, { createHash, createHmac, generateKeyPairSync, verify } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { describe, it, mock } from 'node:test'
import fc from 'fast-check'
import { ConfigError, SignatureError } from '../../../src/core/errors.ts'
import {
  findPinnedKey,
  parseSealedSignature,
  parseSignatureHeader,
  parseSignerKeys,
  type SignedBytes,
  type SignerKey,
  verifyHmacSignature,
  verifyPinnedDigest,
  verifySealedSignature,
} from '../../../src/core/trust/signature.ts'

/** A test vector of RFC 8032, section 7.1. All values except the name are hex. */
interface Ed25519Vector {
  readonly name: string
  readonly publicKey: string
  readonly message: string
  readonly signature: string
}

const FILE = join(import.meta.dirname, '../../vectors/ed25519-rfc8032.json')

const ED25519_VECTORS: readonly Ed25519Vector[] = JSON.parse(readFileSync(FILE, 'utf8'))

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

const [RAW = Buffer.alloc(0), OTHER = Buffer.alloc(0)] = ED25519_VECTORS.map(({ publicKey }) =>
  Buffer.from(publicKey, 'hex'),
)
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')

function pem(der: Buffer, label = 'PUBLIC KEY'): string {
  return `-----BEGIN ${label}-----\n${der.toString('base64')}\n-----END ${label}-----\n`
}

function pemOf(raw: Buffer): string {
  return pem(Buffer.concat([SPKI_PREFIX, raw]))
}

function rawOf(text: string): string[] {
  return parseSignerKeys(text).map(({ raw }) => raw.toString('hex'))
}

const hex = RAW.toString('hex')
const RAW_BASE64 = RAW.toString('base64')
const both = [hex, OTHER.toString('hex')]
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' })
const ed25519 = generateKeyPairSync('ed25519')

/** The y of each point whose order divides 8, without the bit for the sign of x. */
const SMALL_ORDER_Y = [
  '0000000000000000000000000000000000000000000000000000000000000000',
  '0100000000000000000000000000000000000000000000000000000000000000',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
]
const NOT_CANONICAL_Y = [
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
]

function withSign(y: string): string {
  const raw = Buffer.from(y, 'hex')
  raw.writeUInt8(raw.readUInt8(31) | 0x80, 31)
  return raw.toString('hex')
}

const accepted: { name: string; text: string; raw: string[] }[] = [
  { name: 'base64', text: RAW_BASE64, raw: [hex] },
  { name: 'hex', text: hex, raw: [hex] },
  { name: 'hex in upper case', text: hex.toUpperCase(), raw: [hex] },
  { name: 'a PEM block', text: pemOf(RAW), raw: [hex] },
  {
    name: 'a PEM block that Node exports',
    text: pem(ed25519.publicKey.export({ format: 'der', type: 'spki' })),
    raw: [rawHex(ed25519.publicKey)],
  },
  { name: 'one key per line, between empty lines', text: `\n${RAW_BASE64}\n\n  ${both[1]}\n`, raw: both },
  { name: 'keys with CRLF and spaces around them', text: ` ${RAW_BASE64} \r\n${both[1]}\r\n`, raw: both },
  { name: 'several PEM blocks', text: pemOf(RAW) + pemOf(OTHER), raw: both },
  { name: 'a PEM block and a line', text: `${pemOf(RAW)}${both[1]}`, raw: both },
  { name: 'a PEM block with CRLF', text: pemOf(RAW).replaceAll('\n', '\r\n'), raw: [hex] },
]

const refused: { name: string; text: string }[] = [
  { name: 'an empty text', text: '' },
  { name: 'empty lines', text: '\n \n' },
  { name: 'base64 without its padding', text: RAW_BASE64.slice(0, -1) },
  { name: 'base64 with stray bits in its last character', text: RAW_BASE64.replace(/.=$/, 'p=') },
  { name: 'base64 in the URL alphabet', text: Buffer.alloc(32, 0xfb).toString('base64url') },
  { name: 'base64 of 31 bytes', text: RAW.subarray(1).toString('base64') },
  { name: 'base64 of 33 bytes', text: Buffer.concat([RAW, Buffer.alloc(1)]).toString('base64') },
  { name: 'hex of 31 bytes', text: hex.slice(2) },
  { name: 'hex with a colon', text: hex.replace(/^(..)/, '$1:') },
  { name: 'two keys on a line', text: `${RAW_BASE64} ${RAW_BASE64}` },
  { name: 'a good key before a line that is not one', text: `${RAW_BASE64}\nnonsense` },
  { name: 'a PEM block without its end', text: pemOf(RAW).slice(0, 80) },
  { name: 'an empty PEM block', text: pem(Buffer.alloc(0)) },
  { name: 'a PEM block of another algorithm', text: pem(ec.publicKey.export({ format: 'der', type: 'spki' })) },
  {
    name: 'a PEM block of X25519',
    text: pem(generateKeyPairSync('x25519').publicKey.export({ format: 'der', type: 'spki' })),
  },
  { name: 'a PEM block with bytes after the key', text: pem(Buffer.concat([SPKI_PREFIX, RAW, Buffer.alloc(1)])) },
  { name: 'a private key', text: ed25519.privateKey.export({ format: 'pem', type: 'pkcs8' }).toString() },
  { name: 'a certificate', text: pem(RAW, 'CERTIFICATE') },
]

function rawHex(key: SignerKey['key']): string {
  return Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url').toString('hex')
}

function isInvalidInput(error: unknown): boolean {
  return error instanceof ConfigError && error.code === 'invalid_input'
}

describe('parseSignerKeys', () => {
  for (const { name, text, raw } of accepted) {
    it(`reads ${name}`, () => assert.deepEqual(rawOf(text), raw))
  }

  for (const { name, text } of refused) {
    it(`refuses ${name}`, () => assert.throws(() => parseSignerKeys(text), isInvalidInput))
  }

  for (const label of ['PRIVATE KEY', 'ENCRYPTED PRIVATE KEY', 'OPENSSH PRIVATE KEY', 'EC PRIVATE KEY']) {
    it(`says that "${label}" is a private key and quotes nothing from it`, () => {
      const text = `${RAW_BASE64}\n${pem(OTHER, label)}`
      assert.throws(
        () => parseSignerKeys(text),
        error =>
          isInvalidInput(error) &&
          /a private key begins on line 2/.test(`${error}`) &&
          !`${error}`.includes(OTHER.toString('base64')),
      )
    })
  }

  it('returns keys that verify signatures, each with its text in base64', () => {
    for (const { publicKey, message, signature } of ED25519_VECTORS) {
      const [key] = parseSignerKeys(publicKey)
      assert.ok(key !== undefined && verify(null, Buffer.from(message, 'hex'), key.key, Buffer.from(signature, 'hex')))
      assert.equal(key.base64, key.raw.toString('base64'))
    }
  })

  for (const y of [...SMALL_ORDER_Y, ...NOT_CANONICAL_Y]) {
    for (const raw of [y, withSign(y)]) {
      it(`refuses the weak key ${raw}`, () => assert.throws(() => parseSignerKeys(raw), isInvalidInput))
    }
  }

  it('names the line and quotes nothing from it', () => {
    const secret = ed25519.privateKey.export({ format: 'pem', type: 'pkcs8' }).toString().split('\n')[1] as string
    assert.throws(
      () => parseSignerKeys(`${RAW_BASE64}\n\n${secret}`),
      (error: Error) => /line 3/.test(error.message) && !error.message.includes(secret.slice(0, 8)),
    )
  })
})

describe('findPinnedKey', () => {
  const keys = parseSignerKeys(`${RAW_BASE64}\n${both[1]}`)
  const unknown = parseSignerKeys(ED25519_VECTORS.at(-1)?.publicKey ?? '').at(0) as SignerKey

  it('finds each of several pinned keys', () => {
    assert.deepEqual(
      [RAW, OTHER].map(raw => findPinnedKey(keys, raw.toString('base64'))),
      keys,
    )
  })

  it('names the pinned keys and the offered one', () => {
    assert.throws(
      () => findPinnedKey(keys, unknown.raw.toString('base64')),
      (error: Error) => [...keys, unknown].every(({ base64 }) => error.message.includes(base64)),
    )
  })

  it('advises pinning the new key only if the hub offers a key', () => {
    const adviceFor = (offered: string) => {
      try {
        return String(findPinnedKey(keys, offered))
      } catch (error) {
        return String(error)
      }
    }
    assert.match(adviceFor(unknown.raw.toString('base64')), /pin the new key only if/)
    assert.match(
      adviceFor('x'),
      /not base64 of 32 bytes: nothing was downloaded\. Ask the publisher to correct the key/,
    )
  })

  const offers = {
    'another key': unknown.raw.toString('base64'),
    'a pinned key in hex': hex,
    'a pinned key without padding': RAW_BASE64.slice(0, -1),
    'a pinned key as PEM': pemOf(RAW),
    'a pinned key with stray bits': RAW_BASE64.replace(/.=$/, 'p='),
    'a pinned key and white space': `${RAW_BASE64}\n`,
    'no key': '',
  }
  for (const [name, offered] of Object.entries(offers)) {
    it(`trusts no hub that offers ${name}`, () => {
      const isUntrusted = (error: unknown) => error instanceof SignatureError && error.code === 'untrusted_signer'
      assert.throws(() => findPinnedKey(keys, offered), isUntrusted)
    })
  }
})
