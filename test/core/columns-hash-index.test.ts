import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { HashIndex } from '../../src/core/columns.ts'

const MANY = 10_000

/** Asserts that a number is not found under its hash before it is added, and is found afterwards. */
function assertFindsAll(hashOf: (number: number) => number): void {
  const index = new HashIndex()
  for (let number = 0; number < MANY; number++) {
    assert.equal(
      index.find(hashOf(number), found => found === number),
      undefined,
    )
    index.add(hashOf(number), number)
  }
  for (let number = 0; number < MANY; number += 97)
    assert.equal(
      index.find(hashOf(number), found => found === number),
      number,
    )
}

describe('a hash index', () => {
  it('finds numbers under hashes of 32 bits', () => {
    assertFindsAll(number => Math.imul(number, 0x9e3779b1) >>> 0)
  })

  it('finds numbers whose hashes are adjacent, up to the largest hash', () => {
    assertFindsAll(number => 2 ** 32 - 1 - number)
  })

  it('finds each of several numbers under one hash', () => {
    assertFindsAll(number => Math.imul(number % 2500, 0x9e3779b1) >>> 0)
  })

  it('compares only the numbers under the same hash', () => {
    const index = new HashIndex()
    index.add(1, 10)
    index.add(1 + 1024, 20)
    const asked: number[] = []
    index.find(1 + 1024, number => asked.push(number) === 0)
    assert.deepEqual(asked, [20])
  })
})
