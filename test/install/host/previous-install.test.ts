import assert from 'node:assert/strict'
import { mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { layoutOf, type Place } from '../../../src/install/host/layout.ts'
import {
  findLeftBehind,
  type PreviousInstall,
  stateFor,
  verifyPlace,
  verifyProjectPlace,
  versionsFrom,
} from '../../../src/install/host/previous-install.ts'
import { recordInstalled } from '../../../src/install/host/record.ts'
import type { InstalledRow, Origin } from '../../../src/install/host/rows.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'
import { collectLog, prepareTemporaryHost, removedRowOf, rowOf, snapshotOf } from '../prepared-host.ts'

const PLACE: Place = { shelf: 'plugins', id: 'greeter', directory: 'plugins' }
const MARKETPLACE: Origin = { contract: 'marketplace', slug: 'greeter' }

function previousOf(more: Partial<PreviousInstall>): PreviousInstall {
  return { installed: undefined, removed: undefined, version: null, ...more }
}

const PLACE_TAKEN = { code: 'place_taken' }

describe('verifyPlace', () => {
  const verify = (origin: Origin, installed: InstalledRow | undefined, allowTakeover = false): string[] => {
    const log = collectLog()
    verifyPlace(previousOf({ installed }), { origin, allowTakeover, chosenBy: 'operator' }, log)
    return log.lines.filter(line => line.startsWith('warning'))
  }
  const others: Origin[] = [
    { contract: 'project', slug: 'greeter' },
    { ...MARKETPLACE, slug: 'other' },
  ]
  for (const origin of others) {
    it(`refuses the place of another plugin to the ${origin.contract} origin ${origin.slug}, unless a takeover is allowed`, () => {
      assert.throws(() => verify(origin, rowOf()), PLACE_TAKEN)
      assert.match(verify(origin, rowOf(), true).join(), /plugins\/greeter, where the plugin greeter is installed/)
    })
  }

  for (const [chosenBy, advice] of [
    ['operator', 'Use another id or project root; if'],
    ['publisher', 'Use another project root, or ask the publisher for another id; if'],
    ['rollback', 'Roll back to another version; if'],
  ] as const) {
    it(`advises what can be done about an id that was chosen by this: ${chosenBy}`, () => {
      const claim = { origin: { ...MARKETPLACE, slug: 'other' }, allowTakeover: false, chosenBy }
      assert.throws(
        () => verifyPlace(previousOf({ installed: rowOf() }), claim, collectLog()),
        error => error instanceof DeploymentError && error.message.includes(`Nothing was changed. ${advice}`),
      )
    })
  }

  it('accepts a plugin of the same origin or without a record, with no warning', () => {
    assert.deepEqual([verify(MARKETPLACE, rowOf()), verify(MARKETPLACE, undefined)], [[], []])
  })
})

describe('verifyProjectPlace', () => {
  const PROJECT: Origin = { contract: 'project', slug: 'shop' }
  const EXTENSION: Place = { shelf: 'extensions', id: 'greeter', directory: 'extensions' }
  const verify = (root: string, allowTakeover = false, place = PLACE): string[] => {
    const log = collectLog()
    verifyProjectPlace(layoutOf(root), place, { origin: PROJECT, allowTakeover, chosenBy: 'publisher', log })
    return log.lines
  }

  for (const path of ['plugins/greeter', 'extensions/greeter']) {
    it(`refuses ${path} of unknown origin, unless a takeover is allowed`, t => {
      const root = temporaryDirectory(t)
      mkdirSync(join(root, path), { recursive: true })
      assert.throws(() => verify(root), PLACE_TAKEN)
      assert.match(verify(root, true).join(), new RegExp(`warning .*${path}`))
    })
  }

  for (const [what, shelf] of Object.entries({
    'the usual directory': 'plugins',
    'the directory of integration.yaml': 'app',
    'a recorded directory': 'mods',
  })) {
    it(`refuses an id of unknown origin in ${what}, wherever the project wants to install it`, async t => {
      const layout = await prepareTemporaryHost(t)
      writeTree(layout.root, { 'integration.yaml': 'plugins: {directory: app}\n', [`${shelf}/greeter/main.py`]: '' })
      await recordInstalled(layout, { rows: [rowOf({ id: 'other', directory: 'mods' })], removed: [] })
      const taken = { ...PLACE_TAKEN, message: new RegExp(`^${shelf}/greeter is taken`) }
      for (const place of [{ ...PLACE, directory: 'zzz' }, EXTENSION])
        assert.throws(() => verify(layout.root, false, place), taken)
      assert.match(verify(layout.root, true, EXTENSION).join(), new RegExp(`takes over ${shelf}/greeter`))
    })
  }

  it('accepts its own part under another name of its directory, and a directory that is a dangling symlink', async t => {
    const layout = await prepareTemporaryHost(t)
    writeTree(layout.root, { 'integration.yaml': 'plugins: {directory: app}\n', 'plugins/greeter/main.py': '' })
    await recordInstalled(layout, { rows: [rowOf({ ...PROJECT })], removed: [] })
    for (const target of ['plugins', 'missing', 'app']) {
      rmSync(join(layout.root, 'app'), { force: true })
      symlinkSync(target, join(layout.root, 'app'))
      assert.deepEqual(verify(layout.root), [])
    }
  })

  it('accepts an empty place, even if there are settings for it', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { 'plugins/greeter.env': 'A=1\n' })
    assert.deepEqual(verify(root), [])
  })
})

describe('stateFor', () => {
  it('returns the version of this origin or of unknown origin, not that of another origin', () => {
    const other: Origin = { contract: 'project', slug: 'shop' }
    const installed = rowOf({ version: '2.0.0' })
    assert.deepEqual(stateFor(previousOf({ installed, version: '2.0.0' }), MARKETPLACE), {
      version: '2.0.0',
      isOurs: true,
    })
    assert.deepEqual(stateFor(previousOf({ version: 'dev' }), MARKETPLACE), { version: 'dev', isOurs: false })
    assert.equal(stateFor(previousOf({ installed, version: '2.0.0' }), other).version, null)
  })
})

describe('versionsFrom', () => {
  it('returns the installed and retained versions of this origin, not those of another origin', () => {
    const { snapshots: _, contract, kind, slug, id, ...version } = rowOf({ version: '1.0.0' })
    const installed = rowOf({ snapshots: [{ ...version, name: '1-1.0.0' }] })
    const previous = previousOf({ installed, version: '2.0.0' })
    const versions = versionsFrom(previous, MARKETPLACE).map(row => row.version)
    assert.deepEqual(versions, ['2.0.0', '1.0.0'])
    assert.deepEqual(versionsFrom(previous, { contract: 'project', slug: 'greeter' }), [])
  })
})

describe('findLeftBehind', () => {
  const root = '/srv/nothing-here'
  const holding = (name: string, more = {}) => snapshotOf(name, { kept_paths: ['data'], ...more })
  const leftBy = (slug: string, snapshots = [holding('1-1.0'), holding('2-2.0'), snapshotOf('3-3.0')], at = root) =>
    findLeftBehind(
      layoutOf(at),
      { ...PLACE, previous: previousOf({ removed: removedRowOf({ slug, snapshots }) }) },
      MARKETPLACE,
    )

  it('returns the newest snapshot with kept paths', () => {
    assert.equal(leftBy('greeter'), `${root}/.hub-deploy/snapshots/plugins/greeter/2-2.0`)
  })

  it('returns undefined without kept paths, and for those of another origin', () => {
    assert.equal(leftBy('greeter', [snapshotOf('3-3.0')]), undefined)
    assert.equal(leftBy('other'), undefined)
    assert.equal(leftBy('greeter', [holding('1-1.0', { origin: { ...MARKETPLACE, slug: 'other' } })]), undefined)
  })

  it('finds a snapshot of this origin in the row of another origin', () => {
    const snapshots = [holding('1-1.0', { origin: MARKETPLACE }), holding('2-2.0')]
    assert.equal(leftBy('other', snapshots), `${root}/.hub-deploy/snapshots/plugins/greeter/1-1.0`)
  })

  it('returns undefined if the place is in use and has its own kept paths', t => {
    const occupied = temporaryDirectory(t)
    mkdirSync(join(occupied, 'plugins/greeter'), { recursive: true })
    assert.equal(leftBy('greeter', undefined, occupied), undefined)
  })
})
