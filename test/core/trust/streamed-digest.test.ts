import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it } from 'node:test'
import { StreamedDigest } from '../../../src/core/trust/streamed-digest.ts'

const BYTES = Buffer.from('some bytes')
const EXPECTED = hash('sha256', BYTES, 'hex')

describe('StreamedDigest', () => {
  it('gives the digest of bytes that arrive at once', () => {
    assert.equal(new StreamedDigest(BYTES.length).add(BYTES), EXPECTED)
  })

  for (const pieceBytes of [1, 3, 9]) {
    it(`gives the digest of bytes that arrive ${pieceBytes} at a time, after the last one`, () => {
      const digest = new StreamedDigest(BYTES.length)
      const answers: (string | null)[] = []
      for (let at = 0; at < BYTES.length; at += pieceBytes)
        answers.push(digest.add(BYTES.subarray(at, at + pieceBytes)))
      assert.equal(answers.pop(), EXPECTED)
      assert.ok(answers.every(answer => answer === null))
    })
  }
})
