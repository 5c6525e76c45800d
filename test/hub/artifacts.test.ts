import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { mkdirSync, statSync, truncateSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { artifactPath, FewAtATime, keepArtifact, streamArtifact } from '../../hub/artifacts.ts'
import { openStore } from '../../hub/store.ts'
import { isOpen } from '../folders.ts'
import { runShopHub } from './project/project-client.ts'
import { errorOf, newFolder, runHub } from './running-hub.ts'

const ROUTES = {
  'a plugin': async (t: TestContext) => {
    const hub = await runHub(t)
    await hub.publish()
    const key = hub.newKey()
    return (headers: Record<string, string> = {}, method = 'GET') =>
      hub.call('/plugins/hello/install', { key, method, headers })
  },
  'a project': async (t: TestContext) => {
    const { hub, token } = await runShopHub(t)
    const descriptor = await hub.call('/v1/projects/shop/artifacts/1.0.0', { bearer: token })
    const { pathname } = new URL(((await descriptor.json()) as { download_url: string }).download_url)
    return (headers: Record<string, string> = {}, method = 'GET') => hub.call(pathname, { method, headers })
  },
}

for (const [subject, open] of Object.entries(ROUTES)) {
  describe(`a range of the artifact of ${subject}`, () => {
    const whole = undefined
    const cases: [
      name: string,
      headers: (etag: string) => Record<string, string>,
      expected: typeof whole | number[],
    ][] = [
      ['from an offset', () => ({ Range: 'bytes=7-' }), [7]],
      ['from the first byte', () => ({ Range: 'bytes=0-' }), [0]],
      ['of one byte', () => ({ Range: 'Bytes=7-7' }), [7, 8]],
      ['that ends beyond the last byte', () => ({ Range: 'bytes=7-99999999999999999999' }), [7]],
      ['of the last bytes', () => ({ Range: 'bytes=-3' }), [-3]],
      ['of more last bytes than there are', () => ({ Range: 'bytes=-9999999' }), [0]],
      ['for the ETag', etag => ({ Range: 'bytes=7-', 'If-Range': etag }), [7]],
      ['for a weak ETag: the whole', etag => ({ Range: 'bytes=7-', 'If-Range': `W/${etag}` }), whole],
      ['for another ETag: the whole', () => ({ Range: 'bytes=7-', 'If-Range': '"other"' }), whole],
      ['for a date: the whole', () => ({ Range: 'bytes=7-', 'If-Range': new Date().toUTCString() }), whole],
      ['among several ranges: the whole', () => ({ Range: 'bytes=1-2,4-5' }), whole],
      ['of another unit: the whole', () => ({ Range: 'lines=7-' }), whole],
      ['that ends before it begins: the whole', () => ({ Range: 'bytes=7-6' }), whole],
      ['without a number: the whole', () => ({ Range: 'bytes=-' }), whole],
    ]
    it('has the bytes and headers of RFC 9110', async t => {
      const request = await open(t)
      const first = await request()
      const all = Buffer.from(await first.arrayBuffer())
      const [etag, size] = [first.headers.get('etag') ?? '', all.length]
      assert.equal(etag, `"${createHash('sha256').update(all).digest('hex')}"`)
      for (const [name, headers, expected] of cases) {
        const answer = await request(headers(etag))
        const bytes = expected === undefined ? all : all.subarray(...expected)
        const start = expected === undefined ? 0 : size - all.subarray(expected[0]).length
        assert.deepEqual(
          {
            status: answer.status,
            range: answer.headers.get('content-range'),
            length: answer.headers.get('content-length'),
            etag: answer.headers.get('etag'),
            accepts: answer.headers.get('accept-ranges'),
            signature: answer.headers.get('x-signature'),
          },
          {
            status: expected === undefined ? 200 : 206,
            range: expected === undefined ? null : `bytes ${start}-${start + bytes.length - 1}/${size}`,
            length: String(bytes.length),
            etag,
            accepts: 'bytes',
            signature: first.headers.get('x-signature'),
          },
          name,
        )
        assert.deepEqual(Buffer.from(await answer.arrayBuffer()), bytes, name)
      }
    })

    it('is refused with 416 if it begins after the last byte', async t => {
      const request = await open(t)
      const size = (await (await request()).arrayBuffer()).byteLength
      for (const range of [
        `bytes=${size}-`,
        `bytes=${size + 1}-${size + 2}`,
        'bytes=99999999999999999999-',
        'bytes=-0',
      ]) {
        const answer = await request({ Range: range })
        assert.deepEqual([answer.status, answer.headers.get('content-range')], [416, `bytes */${size}`], range)
        assert.match(await errorOf(answer), /after the last/)
      }
    })

    it('is ignored by HEAD', async t => {
      const request = await open(t)
      const [plain, ranged] = [await request({}, 'HEAD'), await request({ Range: 'bytes=7-' }, 'HEAD')]
      const seen = ({ status, headers }: Response) => [status, headers.get('content-length'), headers.get('etag')]
      assert.deepEqual(seen(ranged), seen(plain))
      assert.equal(ranged.headers.get('content-range'), null)
    })
  })
}

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
