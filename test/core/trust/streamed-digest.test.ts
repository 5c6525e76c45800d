import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it } from 'node:test'
import { StreamedDigest } from '../../../src/core/trust/streamed-digest.ts'

const BYTES = Buffer.from('some bytes')
const EXPECTED = hash('sha256', BYTES, 'hex')

describe('StreamedDigest', () => {
  it('has the digest of bytes that come at once', () => {
    assert.equal(new StreamedDigest(BYTES.length).add(BYTES), EXPECTED)
  })

  for (const pieceBytes of [1, 3, 9]) {
    it(`has the digest of bytes that come ${pieceBytes} at a time, when the last has come`, () => {
      const digest = new StreamedDigest(BYTES.length)
      const answers: (string | null)[] = []
      for (let at = 0; at < BYTES.length; at += pieceBytes)
        answers.push(digest.add(BYTES.subarray(at, at + pieceBytes)))
      assert.equal(answers.pop(), EXPECTED)
      assert.ok(answers.every(answer => answer === null))
    })
  }
})
