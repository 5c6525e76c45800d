import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import type { InstalledRow, Origin } from '../../../src/install/host/installed.ts'
import { layoutOf, type Place } from '../../../src/install/host/layout.ts'
import {
  findLeftBehind,
  type PreviousInstall,
  versionsFrom,
  warnOfTakeover,
} from '../../../src/install/host/previous-install.ts'
import { collectLog } from '../collected-log.ts'
import { removedRowOf, rowOf, snapshotOf } from '../prepared-host.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

const PLACE: Place = { shelf: 'plugins', id: 'greeter' }
const MARKETPLACE: Origin = { contract: 'marketplace', slug: 'greeter' }

function previousOf(more: Partial<PreviousInstall>): PreviousInstall {
  return { place: PLACE, installed: undefined, removed: undefined, version: null, ...more }
}

describe('warnOfTakeover', () => {
  const warnings = (origin: Origin, installed: InstalledRow | undefined = undefined) => {
    const log = collectLog()
    warnOfTakeover(previousOf({ installed }), origin, log)
    return log.lines.filter(line => line.startsWith('warning'))
  }

  it('warns when another contract or slug has installed what is in the place', () => {
    const [warning = ''] = warnings({ contract: 'project', slug: 'greeter' }, rowOf())
    assert.match(warning, /plugin greeter installed plugins\/greeter/)
    assert.equal(warnings({ ...MARKETPLACE, slug: 'other' }, rowOf()).length, 1)
  })

  it('says nothing of what this origin has installed, or what has no record', () => {
    assert.deepEqual(warnings(MARKETPLACE, rowOf()), [])
    assert.deepEqual(warnings(MARKETPLACE), [])
  })
})

describe('versionsFrom', () => {
  it('are the installed and retained versions of this origin, not those of another', () => {
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
    findLeftBehind(layoutOf(at), previousOf({ removed: removedRowOf({ slug, snapshots }) }), MARKETPLACE)

  it('is the newest snapshot with kept paths', () => {
    assert.equal(leftBy('greeter'), `${root}/.hub-deploy/snapshots/plugins/greeter/2-2.0`)
  })

  it('is undefined without kept paths, and for those of another origin', () => {
    assert.equal(leftBy('greeter', [snapshotOf('3-3.0')]), undefined)
    assert.equal(leftBy('other'), undefined)
    assert.equal(leftBy('greeter', [holding('1-1.0', { origin: { ...MARKETPLACE, slug: 'other' } })]), undefined)
  })

  it('finds a snapshot of this origin in the row of another', () => {
    const snapshots = [holding('1-1.0', { origin: MARKETPLACE }), holding('2-2.0')]
    assert.equal(leftBy('other', snapshots), `${root}/.hub-deploy/snapshots/plugins/greeter/1-1.0`)
  })

  it('is undefined when something is in the place, which has its own', t => {
    const occupied = temporaryDirectory(t)
    mkdirSync(join(occupied, 'plugins/greeter'), { recursive: true })
    assert.equal(leftBy('greeter', undefined, occupied), undefined)
  })
})
