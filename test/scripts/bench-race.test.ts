import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { openArtifactCache } from '../../bench/artifact-cache.ts'
import { type Contender, listContenders } from '../../bench/contenders.ts'
import { serveHub } from '../../bench/load/served-hub.ts'
import { measure } from '../../bench/measure.ts'
import { startHub } from '../../bench/programs.ts'
import { onNewHost, race, withReleases } from '../../bench/race.ts'
import type { Artifact } from '../../bench/workloads.ts'
import { whyLeftToCi } from '../extent.ts'
import { temporaryDirectory } from '../folders.ts'

const REPOSITORY = join(import.meta.dirname, '../..')
const TINY = { name: 'tiny', files: 5, bytes: 5_000 }

for (const format of ['zip', 'sealed'] as const) {
  describe(`the race for ${format}`, () => {
    for (const contender of listContenders(format, REPOSITORY)) {
      const { name, missing } = contender
      const skip = (missing.length > 0 && `the contender lacks ${missing.join(', ')}`) || whyLeftToCi()

      it(`measures ${name} installing both versions`, { skip }, async t => {
        const folder = temporaryDirectory(t)
        const place = { workload: TINY, format, cache: openArtifactCache(join(folder, 'cache')), folder }
        const result = await withReleases(place, releases =>
          race(releases, { contenders: [contender], rounds: 1, folder }),
        )
        assert.ok((result['first install'][name]?.ms ?? 0) > 0)
        assert.ok((result.update[name]?.ms ?? 0) > 0)
      })

      it(`requires ${name} to refuse a forged signature`, { skip }, async t => {
        assert.notEqual(await deployForged(t, contender), 0)
      })
    }
  })
}

it('a contender lacks each of its programs that is not on PATH', t => {
  const before = process.env['PATH']
  process.env['PATH'] = temporaryDirectory(t)
  t.after(() => {
    process.env['PATH'] = before
  })
  const lacked = listContenders('sealed', REPOSITORY).filter(({ name }) => name !== 'ours')
  assert.deepEqual(
    lacked.map(({ missing }) => missing.join(', ')),
    ['bash, curl, openssl, zstd, tar', 'python3, zstd, python3 cryptography'],
  )
})

describe('the measurement of a process', () => {
  for (const [exitCode, message] of [
    [3, 'Deploying failed with exit code 3:\nthe log'],
    [null, 'Deploying was ended by a signal:\nthe log'],
  ] as const)
    it(`throws with the log if the exit code is ${exitCode}`, async t => {
      const ended = measure('Deploying', temporaryDirectory(t), async () => ({ exitCode, log: 'the log' }))
      await assert.rejects(ended, { message })
    })
})

for (const [name, start] of [
  ['the hub of a load', serveHub],
  ['the hub of a race', (folder: string) => startHub({}, folder)],
] as const)
  describe(name, () => {
    for (const [end, how] of [
      ['process.exit(3)', 'exit code 3'],
      ['process.kill(process.pid, "SIGKILL")', 'SIGKILL'],
    ] as const)
      it(`is rejected, and the error names ${how}, if the hub ends before it listens`, async t => {
        const before = process.env['NODE_OPTIONS']
        process.env['NODE_OPTIONS'] = `--import=data:text/javascript,${encodeURIComponent(end)}`
        const hub = start(temporaryDirectory(t))
        if (before === undefined) delete process.env['NODE_OPTIONS']
        else process.env['NODE_OPTIONS'] = before
        await assert.rejects(hub, { message: `The hub ended with ${how} before it listened.` })
      })
  })

describe('the longest block of the event loop', () => {
  it('is written to the file at exit', t => {
    const file = join(temporaryDirectory(t), 'loop-delay')
    const block =
      'setTimeout(() => { Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 150); setTimeout(() => {}, 20) }, 20)'
    const preload = join(REPOSITORY, 'bench/reports/loop-delay.ts')
    spawnSync(process.execPath, ['--import', preload, '-e', block], { env: { LOOP_DELAY_FILE: file } })
    assert.ok(Number(readFileSync(file, 'utf8')) >= 100)
  })
})

async function deployForged(t: TestContext, contender: Contender): Promise<number | null> {
  const folder = temporaryDirectory(t)
  const cache = openArtifactCache(join(folder, 'cache'))
  const other = await cache.get(TINY, contender.format, 1)
  const artifact = { ...(await cache.get(TINY, contender.format, 2)), signature: other.signature } as Artifact
  const hub = await startHub({ forged: artifact }, folder)
  try {
    return await onNewHost(folder, async host => {
      const job = { ...host, artifact, hubUrl: hub.urlOf('forged') }
      return (await contender.start(job, [], () => {})).exitCode
    })
  } finally {
    await hub.stop()
  }
}
