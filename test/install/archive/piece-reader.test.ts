import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PieceReader } from '../../../src/install/archive/piece-reader.ts'

const TEXT = 'abcdefghijklmnopqrstuvwxyz'

/** Yields the text in pieces, each of which is overwritten when the next one is requested. */
async function* piecesOf(sizes: readonly number[], onEnd = () => {}): AsyncGenerator<Buffer> {
  try {
    let at = 0
    for (const size of sizes) {
      const piece = Buffer.alloc(size, TEXT.slice(at, at + size))
      at += size
      yield piece
      piece.fill(0)
    }
  } finally {
    onEnd()
  }
}

const tooShort = (): Error => new Error('too short')

const shapes: Record<string, number[]> = {
  'one piece': [26],
  'two pieces': [13, 13],
  'pieces of one byte': Array.from({ length: 26 }, () => 1),
  'pieces of uneven size': [3, 1, 9, 0, 13],
}

const ranges: [position: number, length: number][] = [
  [0, 2],
  [2, 0],
  [2, 3],
  [11, 4],
  [15, 1],
  [20, 6],
]

describe('PieceReader', () => {
  for (const [name, sizes] of Object.entries(shapes)) {
    it(`reads ranges of ${name}`, async () => {
      const reader = new PieceReader(piecesOf(sizes), tooShort)
      for (const [position, length] of ranges) {
        assert.equal((await reader.read(position, length)).toString(), TEXT.slice(position, position + length))
      }
    })

    it(`streams a range of ${name}`, async () => {
      let text = ''
      for await (const part of new PieceReader(piecesOf(sizes), tooShort).stream(2, 20)) text += part.toString()
      assert.equal(text, TEXT.slice(2, 22))
    })
  }

  it('refuses a range beyond the end of the stream', async () => {
    const reader = new PieceReader(piecesOf([13, 13]), tooShort)
    await assert.rejects(reader.read(20, 7), { message: 'too short' })
  })

  it('ends a stream that it has not read to its end', async () => {
    let ended = 0
    const reader = new PieceReader(
      piecesOf([13, 13], () => ended++),
      tooShort,
    )
    await reader.read(0, 1)
    await reader.close()
    assert.equal(ended, 1)
  })
})
