import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { closeSync, openSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { promisify } from 'node:util'
import { createInflateRaw, deflateRawSync } from 'node:zlib'
import { PieceReader, readExactly, readWhole, unpack } from '../../../src/install/archive/pieces.ts'
import { temporaryDirectory } from '../../folders.ts'

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

/** The publisher cannot help: the file was complete when it was opened. */
const truncated = { code: 'invalid_archive', message: /which process on this host shortens the file/ }

function openFile(t: TestContext, text: string): number {
  const path = join(temporaryDirectory(t), 'file')
  writeFileSync(path, text)
  const fd = openSync(path, 'r')
  t.after(() => closeSync(fd))
  return fd
}

describe('readExactly', () => {
  it('fills the buffer from a position', t => {
    const buffer = Buffer.alloc(3)
    readExactly(openFile(t, 'abcdef'), buffer, 2)
    assert.equal(buffer.toString(), 'cde')
  })

  it('refuses a file that ends too early', t => {
    assert.throws(() => readExactly(openFile(t, 'abcdef'), Buffer.alloc(3), 4), truncated)
  })
})

describe('readWhole', () => {
  it("fills shared memory from the file's beginning, whatever the descriptor's position", async t => {
    const fd = openFile(t, 'abcdef')
    readExactly(fd, Buffer.alloc(3), 0)
    const buffer = Buffer.from(new SharedArrayBuffer(6))
    await readWhole(fd, buffer)
    assert.equal(buffer.toString(), 'abcdef')
  })

  it('refuses a file that ends too early', async t => {
    await assert.rejects(readWhole(openFile(t, 'abcdef'), Buffer.alloc(7)), truncated)
  })
})

const MEBIBYTE = 1024 * 1024

const CONTENT = Buffer.from(Array.from({ length: 50_000 }, (_, at) => `line ${at}\n`).join(''))

/** Yields the bytes in one buffer, as a file reader does. */
function* throughOneBuffer(bytes: Buffer, size: number): Generator<Buffer> {
  const buffer = Buffer.alloc(size)
  for (let at = 0; at < bytes.length; at += size) {
    yield buffer.subarray(0, bytes.copy(buffer, 0, at, at + size))
    buffer.fill(0)
  }
}

async function collect(pieces: AsyncIterable<Buffer>): Promise<Buffer> {
  const copies: Buffer[] = []
  for await (const piece of pieces) copies.push(Buffer.from(piece))
  return Buffer.concat(copies)
}

describe('unpack', () => {
  it('uses up each piece before it requests the next', async () => {
    const packed = deflateRawSync(CONTENT)
    const inflate = createInflateRaw({ chunkSize: 4096 })
    assert.ok((await collect(unpack(inflate, throughOneBuffer(packed, 1000)))).equals(CONTENT))
    assert.equal(inflate.bytesWritten, packed.length)
  })

  it('ends where the packed data ends, as bytesWritten shows', async () => {
    const packed = deflateRawSync(CONTENT)
    const inflate = createInflateRaw()
    const longer = Buffer.concat([packed, Buffer.alloc(10_000)])
    assert.ok((await collect(unpack(inflate, throughOneBuffer(longer, 1000)))).equals(CONTENT))
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
    for await (const _ of unpack(inflate, throughOneBuffer(deflateRawSync(CONTENT), 1000))) break
    assert.ok(inflate.destroyed)
  })

  it('causes the used pieces to be collected soon', async () => {
    // In a separate process, because this one may still have the buffers of earlier tests.
    const program = join(import.meta.dirname, 'unpacked-bytes.ts')
    const { stdout } = await promisify(execFile)(process.execPath, [program])
    assert.ok(Number(stdout) < 16 * MEBIBYTE, `${Number(stdout)} bytes`)
  })
})
