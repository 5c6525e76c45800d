import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { halfSipHash } from '../../src/core/columns.ts'

/** From the tests of Linux (lib/tests/siphash_kunit.c): hashes of the first bytes of the sequence 0, 1, 2 and so on. */
const VECTORS: readonly [bytes: number, hash: number][] = [
  [4, 0x7e059ea6],
  [6, 0xa0080b65],
  [8, 0x577999b1],
  [10, 0xe4fa32cf],
  [12, 0x6b28096c],
  [14, 0x16658a7c],
  [16, 0x8b31d501],
  [22, 0xf826ef7b],
]
const KEY = [0x03020100, 0x07060504] as const

describe('halfSipHash', () => {
  for (const [bytes, hash] of VECTORS) {
    it(`matches the published hash of ${bytes} bytes`, () => {
      const input = Buffer.from(Array.from({ length: bytes }, (_, at) => at))
      assert.equal(halfSipHash(KEY, input.readUInt32LE(0), input.toString('utf16le', 4)), hash)
    })
  }

  it('depends on both words of the key, on the number and on the text', () => {
    const hashes = [
      halfSipHash(KEY, 1, 'name'),
      halfSipHash([KEY[0] + 1, KEY[1]], 1, 'name'),
      halfSipHash([KEY[0], KEY[1] + 1], 1, 'name'),
      halfSipHash(KEY, 2, 'name'),
      halfSipHash(KEY, 1, 'names'),
      halfSipHash(KEY, 1, 'name\0'),
    ]
    assert.equal(new Set(hashes).size, hashes.length)
  })
})
