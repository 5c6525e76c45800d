import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { freeBuffer, freeChunk, freeZlibPiece } from '../../../src/core/archive/free-buffer.ts'

const CHUNK_BYTES = 100

describe('freeBuffer', () => {
  it('frees all of the memory', () => {
    const buffer = Buffer.alloc(CHUNK_BYTES)
    freeBuffer(buffer)
    assert.equal(buffer.buffer.byteLength, 0)
  })
})

describe('freeZlibPiece', () => {
  const chunk = (): Buffer => Buffer.from(new ArrayBuffer(CHUNK_BYTES))
  const cases: [string, Buffer, boolean][] = [
    ['frees a piece that fills its buffer', chunk(), true],
    ['frees the last piece of a buffer', chunk().subarray(60), true],
    ['leaves a piece when the stream still writes after it', chunk().subarray(0, 60), false],
    ['leaves a piece of other memory', Buffer.from(new ArrayBuffer(CHUNK_BYTES + 1)).subarray(1), false],
  ]
  for (const [name, piece, isFreed] of cases) {
    it(name, () => {
      freeZlibPiece(piece, CHUNK_BYTES)
      assert.equal(piece.buffer.byteLength === 0, isFreed)
    })
  }
})

describe('freeChunk', () => {
  it('frees a chunk that has its memory to itself', () => {
    const chunk = Buffer.alloc(CHUNK_BYTES)
    freeChunk(chunk)
    assert.equal(chunk.length, 0)
  })

  it('leaves a part of other memory', () => {
    const chunk = Buffer.alloc(CHUNK_BYTES).subarray(1)
    freeChunk(chunk)
    assert.equal(chunk.length, CHUNK_BYTES - 1)
  })

  it('leaves a buffer in the pool for small buffers', () => {
    const chunk = Buffer.from('small')
    freeChunk(chunk)
    assert.equal(chunk.toString(), 'small')
  })
})
