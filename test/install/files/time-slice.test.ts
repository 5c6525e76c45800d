import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { FileDigester, TimeSlice } from '../../../src/install/files/time-slice.ts'
import { temporaryDirectory } from '../../folders.ts'

const reason = new Error('cancelled')

/** A slice that is over, for work that has just been cancelled. */
function endedSlice(): TimeSlice {
  const controller = new AbortController()
  const slice = new TimeSlice(controller.signal)
  while (!slice.isOver());
  controller.abort(reason)
  return slice
}

async function* pieces(): AsyncGenerator<Buffer> {
  yield Buffer.from('a')
  yield Buffer.from('b')
}

describe('TimeSlice.forEach', () => {
  it('handles each item, in order', async () => {
    const made: number[] = []
    await new TimeSlice().forEach([1, 2, 3], item => made.push(item))
    assert.deepEqual(made, [1, 2, 3])
  })

  it('notices an abort between items', async () => {
    const made: number[] = []
    await assert.rejects(
      endedSlice().forEach([1, 2, 3], item => made.push(item)),
      reason,
    )
    assert.deepEqual(made, [1])
  })
})

describe('TimeSlice.run', () => {
  function* work(done: number[]): Generator<void, string> {
    for (let step = 1; step <= 3; step++) {
      done.push(step)
      yield
    }
    return 'result'
  }

  it('does all of the work and returns its result', async () => {
    const done: number[] = []
    assert.equal(await new TimeSlice().run(work(done)), 'result')
    assert.deepEqual(done, [1, 2, 3])
  })

  it('notices an abort at a pause', async () => {
    const done: number[] = []
    await assert.rejects(endedSlice().run(work(done)), reason)
    assert.deepEqual(done, [1])
  })
})

describe('TimeSlice.pace', () => {
  it('yields the same pieces', async () => {
    const seen: string[] = []
    for await (const piece of new TimeSlice().pace(pieces())) seen.push(piece.toString())
    assert.deepEqual(seen, ['a', 'b'])
  })

  it('notices an abort before a piece', async () => {
    await assert.rejects(async () => {
      for await (const _ of endedSlice().pace(pieces())) assert.fail('a piece came after the abort')
    }, reason)
  })
})

const SIZES = [0, 1, 1024 * 1024, 3 * 1024 * 1024 + 1]

describe('FileDigester', () => {
  it('hashes one file after another, of any size', async t => {
    const folder = temporaryDirectory(t)
    const digester = new FileDigester()
    for (const size of SIZES) {
      const bytes = Buffer.alloc(size, 'bytes')
      writeFileSync(join(folder, 'file'), bytes)
      assert.equal(await digester.sha256(join(folder, 'file'), size), createHash('sha256').update(bytes).digest('hex'))
    }
  })

  it('reads little of a file that has grown to a terabyte since it was listed, and gives it another digest', async t => {
    const path = join(temporaryDirectory(t), 'file')
    writeFileSync(path, 'x')
    truncateSync(path, 2 ** 40)
    assert.notEqual(await new FileDigester().sha256(path, 1), createHash('sha256').update('x').digest('hex'))
  })

  it('follows no symlink', async t => {
    const folder = temporaryDirectory(t)
    writeFileSync(join(folder, 'file'), 'x')
    symlinkSync('file', join(folder, 'link'))
    await assert.rejects(new FileDigester().sha256(join(folder, 'link'), 1), { code: 'ELOOP' })
  })

  it("throws an aborted signal's reason", async t => {
    const path = join(temporaryDirectory(t), 'file')
    writeFileSync(path, Buffer.alloc(64 * 1024 * 1024))
    const digester = new FileDigester(AbortSignal.abort(new Error('cancelled')))
    await assert.rejects(digester.sha256(path, 64 * 1024 * 1024), /cancelled/)
  })
})
