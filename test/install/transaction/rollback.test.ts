import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { RollbackError } from '../../../src/core/errors.ts'
import { endlessGrace } from '../../../src/install/files/child-process.ts'
import { type Layout, treeRecordPath } from '../../../src/install/host/layout.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import { type FailedRun, type RolledBack, rollBack } from '../../../src/install/transaction/rollback.ts'
import { driftNotePath, findDrift, noteDrift } from '../../../src/install/trees/drift.ts'
import { timesMoveOn } from '../../clocks.ts'
import { rewriteKeepingTime, writeTree } from '../../folders.ts'
import { collectLog, prepareTemporaryHost, rowOf } from '../prepared-host.ts'
import { installRecorded, GREETER as PLACE, recordTreeAt, treeOf } from '../trees/recorded-tree.ts'

const OF = { contract: 'marketplace', slug: 'greeter' } as const
const FILES = { 'main.py': 'old', 'README.md': 'read', 'lib/a.py': 'a', 'lib/deep/b.py': 'b' }

/** An installed version with its record, as if the version had been moved away and back. */
async function makeRestored(t: TestContext): Promise<{ layout: Layout; place: string; record: string }> {
  const layout = await prepareTemporaryHost(t)
  const { root: place, tree_record: record } = await installRecorded(layout, FILES)
  writeTree(place, { 'data/db': 'rows' })
  return { layout, place, record: treeRecordPath(layout, record) }
}

/** A request without services or health checks. */
function requestOf(layout: Layout): Omit<FailedRun, 'undo'> {
  return {
    layout,
    log: collectLog(),
    grace: endlessGrace(),
    places: [PLACE],
    keepPaths: ['data'],
    stagingFolder: layout.staging,
    byContent: false,
    of: OF,
    services: [],
    healthchecks: async () => [],
  }
}

async function rolledBack(layout: Layout, undo: () => Promise<boolean>, byContent = false): Promise<RolledBack> {
  return await rollBack({ ...requestOf(layout), byContent, undo })
}

/** Begins the deployment: notes the differences that exist now as the host's own. Later changes get later times. */
async function begin(layout: Layout): Promise<void> {
  const drift = await findDrift({ layout, log: collectLog() }, { ...PLACE, keepPaths: ['data'] })
  if (drift) await noteDrift(layout.staging, { ...PLACE, root: join(layout.root, 'plugins/greeter') }, drift)
  await timesMoveOn(layout.staging)
}

/** Writes a record with the digests of `FILES` and with the current times of the files. */
async function rerecord(layout: Layout, place: string) {
  await timesMoveOn(layout.staging)
  const tree = await recordTreeAt(layout, place, treeOf(FILES))
  await recordInstalled(layout, { rows: [rowOf(tree)], removed: [] })
  return tree
}

describe('rollBack', () => {
  it('reports failed when there was nothing to undo', async t => {
    const { layout } = await makeRestored(t)
    assert.deepEqual(await rolledBack(layout, async () => false), { outcome: 'failed', rollback: null })
  })

  it('verifies the restored tree against its record', async t => {
    const { layout } = await makeRestored(t)
    await begin(layout)
    const { outcome, rollback } = await rolledBack(layout, async () => true)
    assert.deepEqual([outcome, rollback?.restored, rollback?.verified], ['rolled_back', true, true])
  })

  it('first names the files of the host that could not be put back', async t => {
    const { layout } = await makeRestored(t)
    await begin(layout)
    const lost: string[] = []
    const undo = async (): Promise<boolean> => lost.push('plugins/greeter/data was removed') > 0
    const { outcome, rollback } = await rollBack({ ...requestOf(layout), undo, lost })
    assert.deepEqual([outcome, rollback?.problems], ['rolled_back', lost])
  })

  it('reports inconsistent, with the reason, when undoing fails', async t => {
    const { layout } = await makeRestored(t)
    const result = await rolledBack(layout, async () => {
      throw new RollbackError('rollback_failed', 'in the way')
    })
    assert.equal(result.outcome, 'inconsistent')
    assert.deepEqual([result.rollback?.restored, result.rollback?.problems], [false, ['in the way']])
  })

  it('reports unknown health for a part that no check examines', async t => {
    const { layout } = await makeRestored(t)
    const log = collectLog()
    const nothing = { id: 'greeter', service: null, check: null, timeout_seconds: 1, retries: 0 }
    const { rollback } = await rollBack({
      ...requestOf(layout),
      log,
      healthchecks: async () => [{ ...nothing, previous_version: '1.0.0' }],
      undo: async () => true,
    })
    assert.deepEqual([rollback?.healthy, rollback?.problems], [null, []])
    assert.doesNotMatch(log.lines.join(), /healthy/)
  })

  for (const late of ['cancelled', 'comparing', 'restoring'] as const) {
    it(`leaves work to the post step if a cancel leaves no time for it (${late})`, async t => {
      const { layout } = await makeRestored(t)
      await begin(layout)
      const service = { supervisor: 'systemd', scope: 'system', unit: 'no-such-unit.service' } as const
      const probe = { type: 'tcp', address: '127.0.0.1:1' } as const
      const check = { probe, intervalSeconds: 1, stableForSeconds: 0 }
      const healthcheck = { id: 'greeter', service: null, check, timeout_seconds: 60, retries: 0 }
      const { outcome, rollback, unchecked, isUnfinished } = await rollBack({
        ...requestOf(layout),
        grace: { ...endlessGrace(), [late]: AbortSignal.abort(new Error('late')), cancelled: AbortSignal.abort() },
        services: late === 'restoring' ? [{ service, part: 'greeter', was_running: true, replicas: null }] : [],
        healthchecks: async () => [{ ...healthcheck, previous_version: '1.0.0' }],
        undo: async () => true,
      })
      assert.deepEqual([outcome, rollback?.restored, rollback?.healthy], ['rolled_back', true, null])
      assert.equal(rollback?.verified, late === 'comparing' ? null : true)
      assert.deepEqual([isUnfinished, unchecked?.length], late === 'restoring' ? [true, undefined] : [undefined, 1])
    })
  }

  it('does not restore services, and says so, when the old files could not be restored', async t => {
    const { layout } = await makeRestored(t)
    const service = { supervisor: 'systemd', scope: 'system', unit: 'no-such-unit.service' } as const
    const { rollback } = await rollBack({
      layout,
      log: collectLog(),
      grace: endlessGrace(),
      places: [PLACE],
      keepPaths: [],
      stagingFolder: layout.staging,
      byContent: false,
      of: OF,
      services: [{ service, part: 'greeter', was_running: true, replicas: null }],
      healthchecks: async () => [],
      undo: async () => {
        throw new RollbackError('rollback_failed', 'in the way')
      },
    })
    assert.match(rollback?.problems[1] ?? '', /no-such-unit\.service was not restored/)
  })

  it('does not call an old version damaged if another process renames its files back and forth', async t => {
    const { layout, place } = await makeRestored(t)
    await begin(layout)
    let isBack: Promise<void> | undefined
    const undo = async (): Promise<boolean> => {
      renameSync(join(place, 'lib'), join(place, 'last'))
      isBack = setTimeout(50).then(() => renameSync(join(place, 'last'), join(place, 'lib')))
      return true
    }
    const { outcome, rollback } = await rolledBack(layout, undo)
    await isBack
    assert.equal(outcome, 'rolled_back', rollback?.problems.join())
  })

  const damages: Record<string, (place: string) => void> = {
    'a removed file': place => rmSync(join(place, 'lib/a.py')),
    'a removed directory': place => rmSync(join(place, 'lib/deep'), { recursive: true }),
    'a symlink in place of a file': place => {
      rmSync(join(place, 'lib/a.py'))
      symlinkSync('deep/b.py', join(place, 'lib/a.py'))
    },
  }
  const writes: Record<string, (place: string) => void> = {
    'a changed file': place => writeFileSync(join(place, 'main.py'), 'new'),
    'a changed mode': place => chmodSync(join(place, 'main.py'), 0o755),
    'an emptied file': place => writeFileSync(join(place, 'main.py'), ''),
    'a file that was saved by renaming another': place => {
      writeFileSync(join(place, 'main.py~'), 'new')
      renameSync(join(place, 'main.py~'), join(place, 'main.py'))
    },
    'a changed file with its old modification time': place => {
      rewriteKeepingTime(join(place, 'main.py'), 'bad')
    },
  }
  const WRITTEN =
    'plugins/greeter/main.py was written by another process after the deployment began, and was left as it is'
  for (const [name, damage] of Object.entries(damages))
    it(`reports inconsistent for ${name} since the deployment began`, async t => {
      const { layout, place } = await makeRestored(t)
      await begin(layout)
      damage(place)
      const { outcome, rollback } = await rolledBack(layout, async () => true)
      assert.deepEqual([outcome, rollback?.restored, rollback?.verified], ['inconsistent', true, false])
      assert.equal(rollback?.problems.length, 1)
    })

  for (const [name, write] of Object.entries(writes))
    it(`does not call a host inconsistent for ${name} since the deployment began, and names the file`, async t => {
      const { layout, place } = await makeRestored(t)
      await timesMoveOn(layout.staging)
      await begin(layout)
      write(place)
      const { outcome, rollback } = await rolledBack(layout, async () => true)
      assert.deepEqual([outcome, rollback?.verified, rollback?.problems], ['rolled_back', null, [WRITTEN]])
    })

  for (const [name, change] of Object.entries({ ...damages, ...writes }))
    it(`treats ${name} from before the deployment as the host's own`, async t => {
      const { layout, place } = await makeRestored(t)
      change(place)
      await begin(layout)
      const { outcome, rollback } = await rolledBack(layout, async () => true)
      assert.deepEqual([outcome, rollback?.verified, rollback?.problems], ['rolled_back', null, []])
    })

  it('does not call a host inconsistent if a file was written before the differences were noted', async t => {
    const { layout, place } = await makeRestored(t)
    const drift = await findDrift({ layout, log: collectLog() }, { ...PLACE, keepPaths: ['data'] })
    await timesMoveOn(layout.staging)
    writeFileSync(join(place, 'main.py'), 'saved')
    if (drift) await noteDrift(layout.staging, { ...PLACE, root: place }, drift)
    const { outcome, rollback } = await rolledBack(layout, async () => true)
    assert.deepEqual([outcome, rollback?.verified, rollback?.problems], ['rolled_back', null, [WRITTEN]])
  })

  it('names both damage and files that another process has written', async t => {
    const { layout, place } = await makeRestored(t)
    await begin(layout)
    writeFileSync(join(place, 'main.py'), 'new')
    rmSync(join(place, 'lib/a.py'))
    const { outcome, rollback } = await rolledBack(layout, async () => true)
    const missing = 'plugins/greeter/lib/a.py is not as it was before the deployment'
    assert.deepEqual([outcome, rollback?.verified], ['inconsistent', false])
    assert.deepEqual(rollback?.problems, [missing, WRITTEN])
  })

  it('treats a file that is empty after a crash as damaged, unless it was empty before', async t => {
    const { layout, place } = await makeRestored(t)
    writeFileSync(join(place, 'README.md'), '')
    await begin(layout)
    await timesMoveOn(layout.staging)
    for (const path of ['README.md', 'main.py']) writeFileSync(join(place, path), '')
    const { outcome, rollback } = await rolledBack(layout, async () => true, true)
    const lost = 'plugins/greeter/main.py is not as it was before the deployment'
    assert.deepEqual([outcome, rollback?.verified, rollback?.problems[0]], ['inconsistent', false, lost])
    assert.match(rollback?.problems[1] ?? '', /README\.md was written by another process/)
  })

  it('does not call a tree verified if a file was added to it before the deployment', async t => {
    const { layout, place } = await makeRestored(t)
    writeTree(place, { 'by-hand': '' })
    await begin(layout)
    assert.equal((await rolledBack(layout, async () => true)).rollback?.verified, null)
  })

  it('does not call several trees verified if one of them has no record', async t => {
    const { layout } = await makeRestored(t)
    await begin(layout)
    mkdirSync(join(layout.root, 'extensions/other'), { recursive: true })
    const places = [PLACE, { shelf: 'extensions', id: 'other', directory: 'extensions' } as const]
    const request = {
      layout,
      log: collectLog(),
      grace: endlessGrace(),
      places,
      keepPaths: ['data'],
      stagingFolder: layout.staging,
    }
    const rest = { byContent: false, of: OF, services: [], healthchecks: async () => [], undo: async () => true }
    assert.equal((await rollBack({ ...request, ...rest })).rollback?.verified, null)
    rmSync(join(layout.root, 'extensions/other'), { recursive: true })
    assert.equal((await rollBack({ ...request, ...rest })).rollback?.verified, true)
  })

  it('does not report as damage a file that was missing before, even if kept paths move in the same folder', async t => {
    const { layout, place } = await makeRestored(t)
    rmSync(join(place, 'README.md'))
    await begin(layout)
    const aside = join(layout.staging, 'data')
    const undo = async (): Promise<boolean> => {
      renameSync(join(place, 'data'), aside)
      renameSync(aside, join(place, 'data'))
      return true
    }
    assert.equal((await rolledBack(layout, undo)).outcome, 'rolled_back')
  })

  it('ignores kept paths and files that the host added', async t => {
    const { layout, place } = await makeRestored(t)
    await begin(layout)
    writeTree(place, { 'data/db': 'other', 'log/today': 'x' })
    assert.equal((await rolledBack(layout, async () => true)).outcome, 'rolled_back')
  })

  const recordDamages: Record<string, (layout: Layout, treeRecord: string) => string> = {
    'a damaged tree record': (_, path) => {
      writeFileSync(path, readFileSync(path, 'utf8').replace('main.py', 'moin.py'))
      return path
    },
    'a directory in place of the tree record': (_, path) => {
      rmSync(path)
      mkdirSync(path)
      return path
    },
    'a damaged installed.json': ({ installed }) => {
      writeFileSync(installed, '{')
      return installed
    },
  }
  for (const [name, damage] of Object.entries(recordDamages)) {
    it(`does not mistake ${name} for damage to the restored files, and logs its path`, async t => {
      const { layout, record } = await makeRestored(t)
      await begin(layout)
      const path = damage(layout, record)
      const log = collectLog()
      const { outcome, rollback } = await rollBack({
        layout,
        log,
        grace: endlessGrace(),
        places: [PLACE],
        keepPaths: ['data'],
        stagingFolder: layout.staging,
        byContent: false,
        of: OF,
        services: [],
        healthchecks: async () => [],
        undo: async () => true,
      })
      assert.deepEqual([outcome, rollback?.restored, rollback?.verified], ['rolled_back', true, null])
      assert.ok(log.lines.join('\n').includes(path))
    })
  }

  it('verifies nothing when there is no record', async t => {
    const layout = await prepareTemporaryHost(t)
    mkdirSync(join(layout.root, 'plugins/greeter'), { recursive: true })
    const { outcome, rollback } = await rolledBack(layout, async () => true)
    assert.deepEqual([outcome, rollback?.verified], ['rolled_back', null])
  })

  for (const [name, text] of Object.entries({
    'was emptied by a power cut': '',
    'is not one that this action writes': '[[1,2]]',
  }))
    it(`verifies nothing when the drift note ${name}`, async t => {
      const { layout, place } = await makeRestored(t)
      await begin(layout)
      writeFileSync(driftNotePath(layout.staging, PLACE), text)
      writeFileSync(join(place, 'main.py'), 'bad')
      const { outcome, rollback } = await rolledBack(layout, async () => true)
      assert.deepEqual([outcome, rollback?.verified], ['rolled_back', null])
    })

  it('verifies nothing when the old version was not compared before the deployment', async t => {
    const { layout } = await makeRestored(t)
    assert.equal((await rolledBack(layout, async () => true)).rollback?.verified, null)
  })

  it('reads all files after a crash, because a crash may give new bytes old times', async t => {
    const { layout, place, record } = await makeRestored(t)
    await begin(layout)
    // A test cannot set back all times of a file, so the record gets the times of the changed file instead.
    writeFileSync(join(place, 'main.py'), 'bad')
    const { tree_record } = await rerecord(layout, place)
    const restored = {
      layout,
      log: collectLog(),
      grace: endlessGrace(),
      places: [PLACE],
      keepPaths: ['data'],
      stagingFolder: layout.staging,
    }
    const request = { ...restored, of: OF, services: [], healthchecks: async () => [], undo: async () => true }
    assert.notEqual(treeRecordPath(layout, tree_record), record)
    assert.equal((await rollBack({ ...request, byContent: false })).rollback?.verified, true)
    const { outcome, rollback } = await rollBack({ ...request, byContent: true })
    assert.deepEqual([outcome, rollback?.verified], ['inconsistent', false])
  })
})
