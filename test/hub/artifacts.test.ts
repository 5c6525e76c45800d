import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { mkdirSync, statSync, truncateSync } from 'node:fs'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { artifactPath, FewAtATime, keepArtifact, streamArtifact } from '../../hub/artifacts.ts'
import { openStore } from '../../hub/store.ts'
import { isOpen, newFolder } from './running-hub.ts'

describe('the bytes of an artifact', () => {
  it('end with an error when the file becomes shorter while it is sent', async t => {
    const store = openStore(newFolder(t))
    t.after(() => store.close())
    const bytes = randomBytes(8_000_000)
    const artifact = { sha256: createHash('sha256').update(bytes).digest('hex'), size: bytes.length }
    await keepArtifact(store, artifact.sha256, bytes)
    const reader = (await streamArtifact(store, artifact)).getReader()
    await reader.read()
    truncateSync(artifactPath(store, artifact.sha256), 4_000_000)
    const readOn = async () => {
      while (!(await reader.read()).done);
    }
    await assert.rejects(readOn(), /became shorter/)
  })

  it('are read in at most two pieces per turn of the event loop, however many hosts download', async t => {
    const store = openStore(newFolder(t))
    t.after(() => store.close())
    const bytes = randomBytes(2_000_000)
    const artifact = { sha256: createHash('sha256').update(bytes).digest('hex'), size: bytes.length }
    await keepArtifact(store, artifact.sha256, bytes)
    const streams = await Promise.all(Array.from({ length: 20 }, () => streamArtifact(store, artifact)))
    let [pieces, ended] = [0, 0]
    const download = async (stream: (typeof streams)[number]) => {
      for await (const _ of stream) pieces++
      ended++
    }
    const downloads = Promise.all(streams.map(download))
    // Each stream may already have had one piece.
    await setImmediate()
    const inTurns: number[] = []
    while (ended < streams.length) {
      pieces = 0
      // Blocks the event loop while the disk reads, so that all bytes that were read would come in the next turn.
      execFileSync('true')
      await setImmediate()
      inTurns.push(pieces)
    }
    await downloads
    assert.equal(Math.max(...inTurns), 2)
  })

  it('leave no file open when the disk cannot read them', async t => {
    const store = openStore(newFolder(t))
    t.after(() => store.close())
    const sha256 = 'a'.repeat(64)
    const path = artifactPath(store, sha256)
    // A folder can be opened, but not read.
    mkdirSync(path)
    const reader = (await streamArtifact(store, { sha256, size: statSync(path).size })).getReader()
    await assert.rejects(reader.read(), { code: 'EISDIR' })
    assert.equal(isOpen(path), false)
  })
})

describe('work that is done one at a time', () => {
  it('never overlaps, keeps its order, and goes on after a failure', async () => {
    const { seen, settled } = await runAll(new FewAtATime(1), ['a', 'b', 'c'])
    assert.deepEqual(
      seen,
      ['a', 'b', 'c'].flatMap(name => [`${name} starts`, `${name} ends`]),
    )
    assert.deepEqual(settled, ['rejected', 'fulfilled', 'fulfilled'])
  })
})

describe('work that is done two at a time', () => {
  it('overlaps, but never three at once, even if some arrives after the rest has ended', async () => {
    const two = new FewAtATime(2)
    const expected = ['a starts', 'b starts', 'a ends', 'c starts', 'b ends', 'd starts', 'c ends', 'd ends']
    for (let round = 0; round < 2; round++) assert.deepEqual((await runAll(two, ['a', 'b', 'c', 'd'])).seen, expected)
  })
})

/** Runs one piece of work for each name. The work for `a` fails. */
async function runAll(queue: FewAtATime, names: readonly string[]) {
  const seen: string[] = []
  const work = (name: string) => async () => {
    seen.push(`${name} starts`)
    await setImmediate()
    seen.push(`${name} ends`)
    if (name === 'a') throw new Error('failed')
  }
  const settled = await Promise.allSettled(names.map(name => queue.run(work(name))))
  return { seen, settled: settled.map(({ status }) => status) }
}
