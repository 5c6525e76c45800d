import assert from 'node:assert/strict'
import { generateKeyPairSync, verify } from 'node:crypto'
import { describe, it } from 'node:test'
import { ConfigError, SignatureError } from '../../../src/core/errors.ts'
import { findPinnedKey, parseSignerKeys, type SignerKey } from '../../../src/core/trust/signer-keys.ts'
import { ED25519_VECTORS } from './ed25519-vectors.ts'

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
const base64 = RAW.toString('base64')
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
  { name: 'base64', text: base64, raw: [hex] },
  { name: 'hex', text: hex, raw: [hex] },
  { name: 'hex in upper case', text: hex.toUpperCase(), raw: [hex] },
  { name: 'a PEM block', text: pemOf(RAW), raw: [hex] },
  {
    name: 'a PEM block that Node exports',
    text: pem(ed25519.publicKey.export({ format: 'der', type: 'spki' })),
    raw: [rawHex(ed25519.publicKey)],
  },
  { name: 'one key per line, between empty lines', text: `\n${base64}\n\n  ${both[1]}\n`, raw: both },
  { name: 'keys with CRLF and spaces around them', text: ` ${base64} \r\n${both[1]}\r\n`, raw: both },
  { name: 'several PEM blocks', text: pemOf(RAW) + pemOf(OTHER), raw: both },
  { name: 'a PEM block and a line', text: `${pemOf(RAW)}${both[1]}`, raw: both },
  { name: 'a PEM block with CRLF', text: pemOf(RAW).replaceAll('\n', '\r\n'), raw: [hex] },
]

const refused: { name: string; text: string }[] = [
  { name: 'an empty text', text: '' },
  { name: 'empty lines', text: '\n \n' },
  { name: 'base64 without its padding', text: base64.slice(0, -1) },
  { name: 'base64 with stray bits in its last character', text: base64.replace(/.=$/, 'p=') },
  { name: 'base64 in the URL alphabet', text: Buffer.alloc(32, 0xfb).toString('base64url') },
  { name: 'base64 of 31 bytes', text: RAW.subarray(1).toString('base64') },
  { name: 'base64 of 33 bytes', text: Buffer.concat([RAW, Buffer.alloc(1)]).toString('base64') },
  { name: 'hex of 31 bytes', text: hex.slice(2) },
  { name: 'hex with a colon', text: hex.replace(/^(..)/, '$1:') },
  { name: 'two keys on a line', text: `${base64} ${base64}` },
  { name: 'a good key before a line that is not one', text: `${base64}\nnonsense` },
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
      const text = `${base64}\n${pem(OTHER, label)}`
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
      () => parseSignerKeys(`${base64}\n\n${secret}`),
      (error: Error) => /line 3/.test(error.message) && !error.message.includes(secret.slice(0, 8)),
    )
  })
})

describe('findPinnedKey', () => {
  const keys = parseSignerKeys(`${base64}\n${both[1]}`)
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
    'a pinned key without padding': base64.slice(0, -1),
    'a pinned key as PEM': pemOf(RAW),
    'a pinned key with stray bits': base64.replace(/.=$/, 'p='),
    'a pinned key and white space': `${base64}\n`,
    'no key': '',
  }
  for (const [name, offered] of Object.entries(offers)) {
    it(`trusts no hub that offers ${name}`, () => {
      const isUntrusted = (error: unknown) => error instanceof SignatureError && error.code === 'untrusted_signer'
      assert.throws(() => findPinnedKey(keys, offered), isUntrusted)
    })
  }
})
