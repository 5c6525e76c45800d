import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { promisify } from 'node:util'
import { createInflateRaw, deflateRawSync } from 'node:zlib'
import { unpack, unpackingAhead } from '../../../src/install/archive/unpack-stream.ts'

const MEBIBYTE = 1024 * 1024

const CONTENT = Buffer.from(Array.from({ length: 50_000 }, (_, at) => `line ${at}\n`).join(''))

/** Yields the bytes in two alternating buffers, as a file reader does. */
function* throughTwoBuffers(bytes: Buffer, size: number): Generator<Buffer> {
  let [next, other] = [Buffer.alloc(size), Buffer.alloc(size)]
  for (let at = 0; at < bytes.length; at += size) {
    yield next.subarray(0, bytes.copy(next, 0, at, at + size))
    ;[next, other] = [other.fill(0), next]
  }
}

async function collect(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const copies: Buffer[] = []
  for await (const piece of pieces) copies.push(Buffer.from(piece))
  return Buffer.concat(copies)
}

describe('unpack', () => {
  it('reads at most one piece ahead', async () => {
    const packed = deflateRawSync(CONTENT)
    const inflate = createInflateRaw({ chunkSize: 4096 })
    assert.ok((await collect(unpack(inflate, throughTwoBuffers(packed, 1000)))).equals(CONTENT))
    assert.equal(inflate.bytesWritten, packed.length)
  })

  it('ends where the packed data ends, as bytesWritten shows', async () => {
    const packed = deflateRawSync(CONTENT)
    const inflate = createInflateRaw()
    const longer = Buffer.concat([packed, Buffer.alloc(10_000)])
    assert.ok((await collect(unpack(inflate, throughTwoBuffers(longer, 1000)))).equals(CONTENT))
    assert.ok(inflate.bytesWritten < longer.length)
  })

  it('throws an error of the stream', async () => {
    await assert.rejects(collect(unpack(createInflateRaw(), [Buffer.alloc(100, 0xff)])), { code: 'Z_DATA_ERROR' })
  })

  it('throws an error of the pieces', async () => {
    const packed = deflateRawSync(CONTENT)
    function* broken(): Generator<Buffer> {
      yield packed.subarray(0, 1000)
      throw new Error('the file is shorter than it was')
    }
    await assert.rejects(collect(unpack(createInflateRaw(), broken())), /shorter than it was/)
  })

  it('can be abandoned in the middle', async () => {
    const inflate = createInflateRaw({ chunkSize: 1000 })
    for await (const _ of unpack(inflate, throughTwoBuffers(deflateRawSync(CONTENT), 1000))) break
    assert.ok(inflate.destroyed)
  })

  it('causes the used pieces to be collected soon', async () => {
    // In a separate process, because this one may still have the buffers of earlier tests.
    const program = join(import.meta.dirname, 'unpacked-bytes.ts')
    const { stdout } = await promisify(execFile)(process.execPath, [program])
    assert.ok(Number(stdout) < 16 * MEBIBYTE, `${Number(stdout)} bytes`)
  })
})

describe('unpackingAhead', () => {
  it('makes a stream unpack four chunks while its reader is busy with another one, and joins none', async () => {
    const chunkSize = MEBIBYTE / 4
    const inflate = createInflateRaw(unpackingAhead(chunkSize))
    const pieces = unpack(inflate, [deflateRawSync(Buffer.alloc(2 * MEBIBYTE))])
    await pieces.next()
    // With the default options, this wait would not end.
    while (inflate.readableLength < 4) await setImmediate()
    const { value } = await pieces.next()
    assert.equal(value?.length, chunkSize)
    await pieces.return(undefined)
  })
})
