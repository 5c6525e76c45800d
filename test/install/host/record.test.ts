import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync, statSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import type { Layout } from '../../../src/install/host/layout.ts'
import {
  findInstalled,
  holdHostRecord,
  nextInstallation,
  readHostRecord,
  readInstalled,
  recordDiscarded,
  recordInstalled,
  releaseHostRecord,
} from '../../../src/install/host/record.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import { prepareTemporaryHost, removedRowOf, rowOf, snapshotOf } from '../prepared-host.ts'

describe('the host record', () => {
  it('is empty at first', async t => {
    assert.deepEqual(readInstalled(await prepareTemporaryHost(t)), [])
  })

  it('has one row for each place, mode 0600, and the same bytes for the same rows', async t => {
    const layout = await prepareTemporaryHost(t)
    const rows = [rowOf(), rowOf({ kind: 'service' }), rowOf({ id: 'another' }), rowOf({ version: '3.0.0' })]
    for (const row of rows) await recordInstalled(layout, { rows: [row], removed: [] })
    const text = readFileSync(layout.installed, 'utf8')
    assert.equal(statSync(layout.installed).mode & 0o777, 0o600)
    const installed = readInstalled(layout)
    assert.equal(findInstalled(installed, { shelf: 'plugins', id: 'greeter' })?.version, '3.0.0')
    assert.equal(findInstalled(installed, { shelf: 'extensions', id: 'another' }), undefined)
    assert.deepEqual(installed, [rows[1], rows[2], rows[3]])
    for (const row of installed.toReversed()) await recordInstalled(layout, { rows: [row], removed: [] })
    assert.equal(readFileSync(layout.installed, 'utf8'), text)
  })

  const notFiles: Record<string, (path: string) => unknown> = {
    'a directory': path => mkdirSync(path),
    'a symlink': path => symlinkSync('/dev/null', path),
    'a pipe': path => execFileSync('mkfifo', [path]),
    'far too large'(path) {
      writeFileSync(path, '')
      truncateSync(path, 3 * 1024 ** 3)
    },
    'a socket': path => once(createServer().listen(path).unref(), 'listening'),
  }
  for (const [kind, make] of Object.entries(notFiles)) {
    it(`that is ${kind} is named, with advice, and not reported as damaged`, async t => {
      const layout = await prepareTemporaryHost(t)
      await make(layout.installed)
      assert.throws(
        () => readInstalled(layout),
        error =>
          error instanceof DeploymentError &&
          error.code === 'host_not_writable' &&
          error.message.includes(layout.installed) &&
          error.message.includes('Move it away'),
      )
    })
  }

  for (const text of ['', '{', '[]', '{"schema":2,"installed":[]}', '{"schema":1,"installed":[{"id":"x"}]}']) {
    it(`with the content ${JSON.stringify(text)} is refused, and not overwritten`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeFileSync(layout.installed, text)
      for (const act of [
        async () => readInstalled(layout),
        () => recordInstalled(layout, { rows: [rowOf()], removed: [] }),
      ]) {
        await assert.rejects(act, error => error instanceof DeploymentError && error.code === 'inconsistent')
      }
      assert.equal(readFileSync(layout.installed, 'utf8'), text)
    })
  }
})

describe('the number of installations', () => {
  it('never shrinks, even if the last version is gone', async t => {
    const layout = await prepareTemporaryHost(t)
    assert.equal(nextInstallation(layout), 1)
    await recordInstalled(layout, {
      rows: [rowOf({ installation: 1 }), rowOf({ id: 'b', installation: 1 })],
      removed: [],
    })
    await recordInstalled(layout, { rows: [rowOf({ installation: 2 })], removed: [] })
    assert.equal(nextInstallation(layout), 3)
    await recordInstalled(layout, { rows: [rowOf({ installation: 1 })], removed: [] })
    await recordInstalled(layout, { rows: [], removed: [removedRowOf({ snapshots: [] })] })
    assert.equal(nextInstallation(layout), 3)
    assert.equal(JSON.parse(readFileSync(layout.installed, 'utf8')).installations, 2)
  })

  it('stays a number at its limit, which only a forged record reaches', async t => {
    const layout = await prepareTemporaryHost(t)
    const installations = Number.MAX_SAFE_INTEGER
    writeFileSync(layout.installed, JSON.stringify({ schema: 1, installations, installed: [] }))
    assert.equal(nextInstallation(layout), installations)
    await recordInstalled(layout, { rows: [rowOf({ installation: installations })], removed: [] })
    assert.equal(readHostRecord(layout).installations, installations)
    for (const wrong of [-1, 0, 1.5, 1e16, '1', null])
      assertRefused(layout, { schema: 1, installations: wrong, installed: [] })
  })
})

describe('the record of a removed part', () => {
  it('replaces its row until another version is installed there', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf(), rowOf({ id: 'other' })], removed: [] })
    const removed = removedRowOf({ snapshots: [snapshotOf('1-2.0.0', { kept_paths: ['data'] })] })
    await recordInstalled(layout, { rows: [], removed: [removed] })
    assert.deepEqual(readHostRecord(layout), {
      installations: 0,
      installed: [rowOf({ id: 'other' })],
      removed: [removed],
      projects: [],
      discard: [],
    })
    await recordInstalled(layout, { rows: [rowOf({ id: 'other', version: '3.0.0' })], removed: [] })
    assert.deepEqual(readHostRecord(layout).removed, [removed])
    await recordInstalled(layout, { rows: [rowOf()], removed: [] })
    assert.deepEqual(readHostRecord(layout).removed, [])
  })

  it('is left out when no snapshot is retained', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf()], removed: [removedRowOf({ id: 'other', snapshots: [] })] })
    assert.deepEqual(readHostRecord(layout).removed, [])
    assert.deepEqual(Object.keys(JSON.parse(readFileSync(layout.installed, 'utf8'))), ['schema', 'installed'])
  })
})

describe('a name in the host record', () => {
  const withSnapshot = (more: Record<string, unknown>) => rowOf({ snapshots: [snapshotOf('1-2.0.0', more)] })
  const rows: Record<string, InstalledRow> = {
    'a snapshot that leads to all plugins': withSnapshot({ name: '../../../../plugins' }),
    'a snapshot that leads out of the project root': withSnapshot({ name: '../../../../../outside' }),
    'a snapshot that is all snapshots': withSnapshot({ name: '' }),
    'a snapshot in a folder': withSnapshot({ name: '1-2.0.0/data' }),
    'a snapshot with a NUL byte': withSnapshot({ name: '1-2.0.0\0' }),
    'a kept path that leads upwards': withSnapshot({ kept_paths: ['data/../../other'] }),
    'an absolute kept path': withSnapshot({ kept_paths: ['/etc'] }),
    'a snapshot of an origin that is not a name': withSnapshot({ origin: { contract: 'project', slug: '..' } }),
    'the id of all plugins': rowOf({ id: '.' }),
    'the id of the project root': rowOf({ id: '..' }),
    'an empty id': rowOf({ id: '' }),
    'an id with a line break': rowOf({ id: 'greeter\n' }),
    'a slug that is a path': rowOf({ slug: 'a/../b' }),
    'a version that is a path': rowOf({ version: '../1' }),
    'a tree digest that is a path': rowOf({ tree_digest: '../installed' }),
    'a digest of another length': rowOf({ artifact_sha256: 'ab' }),
    'a time that is a path': rowOf({ installed_at: '../2026' }),
    ...Object.fromEntries(
      [-1, 0, 1.5, 1e300, '2', null].map(number => [
        `the installation ${JSON.stringify(number)}`,
        withSnapshot({ installation: number }),
      ]),
    ),
    'a deployment that is not a UUID': rowOf({ deployment_id: '..' }),
    'a link with a line break': rowOf({ run_url: 'http://hub\n::error::' }),
  }
  for (const [name, row] of Object.entries(rows)) {
    it(`is refused: ${name}`, async t => {
      const layout = await prepareTemporaryHost(t)
      assertRefused(layout, { schema: 1, installed: [row] })
    })
  }

  it('may not have a number after the last installation that the record counts', async t => {
    const layout = await prepareTemporaryHost(t)
    const numbered = { installation: 8 }
    const { contract: _, slug: __, snapshots: ___, ...part } = rowOf(numbered)
    const projects = [{ slug: 'shop', version: '1.0.0', parts: [part] }]
    const removed = [removedRowOf({ id: 'other', snapshots: [snapshotOf('1-2.0.0', numbered)] })]
    const installed = [rowOf()]
    for (const more of [{ installed: [rowOf(numbered)] }, { installed, removed }, { installed, projects }]) {
      for (const counted of [{}, { installations: 7 }]) assertRefused(layout, { schema: 1, ...counted, ...more })
      writeFileSync(layout.installed, JSON.stringify({ schema: 1, installations: 8, ...more }))
      assert.equal(readHostRecord(layout).installations, 8)
    }
  })

  it('may not occur twice, either as a place or as a snapshot', async t => {
    const layout = await prepareTemporaryHost(t)
    const snapshots = [snapshotOf('1-2.0.0'), snapshotOf('1-2.0.0')]
    assertRefused(layout, { schema: 1, installed: [rowOf(), rowOf({ version: '1.0.0' })] })
    assertRefused(layout, { schema: 1, installed: [rowOf()], removed: [removedRowOf()] })
    assertRefused(layout, { schema: 1, installed: [rowOf({ snapshots })] })
  })

  it('leads the retry of a removal only to a snapshot that is not retained', async t => {
    const layout = await prepareTemporaryHost(t)
    const installed = [rowOf({ snapshots: [snapshotOf('1-2.0.0')] })]
    const snapshots = '.hub-deploy/snapshots/plugins/greeter'
    for (const path of ['plugins', 'plugins/greeter', `${snapshots}/..`, snapshots, `${snapshots}/1-2.0.0`])
      assertRefused(layout, { schema: 1, installed, discard: [path] })
  })

  for (const [name, record, fault] of [
    ['of the wrong type', { schema: 1, installed: {} }, '(installed must be of type array)'],
    ['that is not a record', [], '(its content must be of type object)'],
    [
      'that contradicts itself',
      { schema: 1, installed: [rowOf(), rowOf()] },
      '(its content lists a plugin or extension twice, so it contradicts itself)',
    ],
  ] as const) {
    it(`is refused with a clause about content ${name}`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeFileSync(layout.installed, JSON.stringify(record))
      assert.throws(
        () => readHostRecord(layout),
        error => error instanceof DeploymentError && error.message.includes(fault),
      )
    })
  }

  it('is accepted at its greatest length', async t => {
    const layout = await prepareTemporaryHost(t)
    const [id, version] = ['i'.repeat(128), 'v'.repeat(128)]
    const row = rowOf({ id, slug: id, version, snapshots: [snapshotOf(`999999999999999-${version}`, { version })] })
    await recordInstalled(layout, { rows: [row], removed: [] })
    assert.deepEqual(readInstalled(layout), [row])
  })
})

/** Asserts that the record is refused with a message that names the file, its fault and the remedy. */
function assertRefused(layout: Layout, record: unknown): void {
  writeFileSync(layout.installed, JSON.stringify(record))
  assert.throws(
    () => readHostRecord(layout),
    error =>
      error instanceof DeploymentError &&
      error.code === 'inconsistent' &&
      error.message.includes(layout.installed) &&
      /must |twice|retained|counts/.test(error.message) &&
      error.message.includes('move it away'),
  )
}

describe('the versions of a project', () => {
  const trees = ['a', 'b', 'c'].map(digit => digit.repeat(64))
  const version = (name: string, tree_digest = trees[0] ?? null) => {
    const { contract: _, slug: __, snapshots: ___, ...part } = rowOf({ tree_digest, project_version: name })
    return { slug: 'shop', version: name, parts: [part] }
  }
  const rowWith = (tree_digest: string | undefined, snapshots: InstalledRow['snapshots'] = []) =>
    rowOf({ contract: 'project', slug: 'shop', tree_digest: tree_digest ?? null, snapshots })
  const versionsIn = (layout: Layout) => readHostRecord(layout).projects.map(project => project.version)

  it('stay listed, the newest last, while all their parts, or a snapshot recorded with that version, are retained', async t => {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version('1.0.0') })
    await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version('1.0.1') })
    assert.deepEqual(versionsIn(layout), ['1.0.0', '1.0.1'])
    await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version('1.0.0') })
    assert.deepEqual(versionsIn(layout), ['1.0.1', '1.0.0'])
    const left = snapshotOf('1-1.0.0', { tree_digest: trees[2] ?? null, project_version: '1.0.0' })
    const project = version('2.0.0', trees[1])
    await recordInstalled(layout, { rows: [rowWith(trees[1], [left])], removed: [], project })
    assert.deepEqual(versionsIn(layout), ['1.0.0', '2.0.0'])
    await recordInstalled(layout, { rows: [rowWith(trees[1])], removed: [], project })
    assert.deepEqual(versionsIn(layout), ['2.0.0'])
  })

  it('are listed once for each set of trees, as long as all trees of an earlier set are retained', async t => {
    const layout = await prepareTemporaryHost(t)
    const treesIn = () => readHostRecord(layout).projects.map(({ parts }) => parts[0]?.tree_digest)
    const [a, b] = [trees[0] ?? '', trees[1] ?? '']
    const left = snapshotOf('1-1.0.0', { tree_digest: a, project_version: '1.0.0' })
    await recordInstalled(layout, { rows: [rowWith(a)], removed: [], project: version('1.0.0', a) })
    for (const _ of [1, 2]) {
      await recordInstalled(layout, { rows: [rowWith(b, [left])], removed: [], project: version('1.0.0', b) })
      assert.deepEqual(treesIn(), [a, b])
    }
    const other = snapshotOf('2-1.0.0', { tree_digest: b, project_version: '1.0.0' })
    await recordInstalled(layout, { rows: [rowWith(a, [other])], removed: [], project: version('1.0.0', a) })
    assert.deepEqual(treesIn(), [b, a])
    const unlike = snapshotOf('3-1.0.0', { tree_digest: trees[2] ?? '', project_version: '1.0.0' })
    await recordInstalled(layout, { rows: [rowWith(a, [unlike])], removed: [], project: version('1.0.0', a) })
    assert.deepEqual(treesIn(), [a])
  })

  it('number at most 20 for each project', async t => {
    const layout = await prepareTemporaryHost(t)
    for (let patch = 0; patch < 22; patch++)
      await recordInstalled(layout, { rows: [rowWith(trees[0])], removed: [], project: version(`1.0.${patch}`) })
    assert.deepEqual([versionsIn(layout).length, versionsIn(layout)[0]], [20, '1.0.2'])
  })
})

describe('the record of a host with two plugins', () => {
  const SNAPSHOT = '.hub-deploy/snapshots/plugins/other/1-1.0.0'
  const COMMIT = { rows: [rowOf({ version: '3.0.0', snapshots: [snapshotOf('1-2.0.0')] })], removed: [] }

  async function openScene(t: TestContext) {
    const layout = await prepareTemporaryHost(t)
    await recordInstalled(layout, { rows: [rowOf(), rowOf({ id: 'other', slug: 'other' })], removed: [] })
    return { layout, known: readHostRecord(layout) }
  }

  it('no longer lists a snapshot for removal if a new snapshot has its path', async t => {
    const { layout } = await openScene(t)
    await recordDiscarded(layout, [SNAPSHOT, '.hub-deploy/snapshots/plugins/greeter/1-2.0.0'])
    await recordInstalled(layout, COMMIT)
    assert.deepEqual(readHostRecord(layout).discard, [SNAPSHOT])
  })

  it('is read once while this process has the lock, whatever another process writes', async t => {
    const { layout, known } = await openScene(t)
    holdHostRecord(layout)
    t.after(() => releaseHostRecord(layout))
    writeFileSync(layout.installed, '{')
    assert.deepEqual(readHostRecord(layout), known)
    await recordInstalled(layout, COMMIT)
    const versions = readHostRecord(layout).installed.map(({ version }) => version)
    assert.deepEqual(versions, ['3.0.0', '2.0.0'])
  })

  it('is read again after the lock is released', async t => {
    const { layout } = await openScene(t)
    holdHostRecord(layout)
    releaseHostRecord(layout)
    writeFileSync(layout.installed, '{"schema":1,"installed":[]}')
    assert.deepEqual(readHostRecord(layout).installed, [])
  })
})
