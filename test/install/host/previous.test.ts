import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { layoutOf } from '../../../src/install/host/layout.ts'
import { findLeftBehind, versionsFrom, warnOfTakeover } from '../../../src/install/host/previous.ts'
import { collectLog } from '../collected-log.ts'
import { removedRowOf, rowOf, snapshotOf } from '../prepared-host.ts'
import { temporaryDirectory } from '../temporary-directory.ts'

const PLACE = { shelf: 'plugins', id: 'greeter' } as const
const MARKETPLACE = { contract: 'marketplace', slug: 'greeter' } as const
const previous = { installed: rowOf(), version: '2.0.0' }

describe('warnOfTakeover', () => {
  const warnings = (
    origin: Parameters<typeof warnOfTakeover>[2],
    found = previous as Parameters<typeof versionsFrom>[0],
  ) => {
    const log = collectLog()
    warnOfTakeover(found, PLACE, origin, log)
    return log.lines.filter(line => line.startsWith('warning'))
  }

  it('warns when another contract or slug has installed what stands there', () => {
    assert.match(
      warnings({ contract: 'project', slug: 'greeter' })[0] ?? '',
      /plugins\/greeter was installed by the plugin greeter/,
    )
    assert.equal(warnings({ ...MARKETPLACE, slug: 'other' }).length, 1)
  })

  it('says nothing of what this origin or nobody of ours has installed', () => {
    assert.deepEqual(warnings(MARKETPLACE), [])
    assert.deepEqual(warnings(MARKETPLACE, { installed: undefined, removed: undefined, version: '1.0.0' }), [])
  })
})

describe('versionsFrom', () => {
  it('has the installed and the retained versions of this origin, and none of another', () => {
    const { snapshots: _, contract, kind, slug, id, ...version } = rowOf({ version: '1.0.0' })
    const installed = rowOf({ snapshots: [{ ...version, name: '1-1.0.0' }] })
    const versions = versionsFrom({ installed, removed: undefined, version: '2.0.0' }, MARKETPLACE).map(
      row => row.version,
    )
    assert.deepEqual(versions, ['2.0.0', '1.0.0'])
    assert.deepEqual(
      versionsFrom({ installed, removed: undefined, version: '2.0.0' }, { contract: 'project', slug: 'greeter' }),
      [],
    )
  })
})

describe('findLeftBehind', () => {
  const root = '/srv/nothing-here'
  const holding = (name: string, more = {}) => snapshotOf(name, { kept_paths: ['data'], ...more })
  const leftBy = (slug: string, snapshots = [holding('1-1.0'), holding('2-2.0'), snapshotOf('3-3.0')], at = root) =>
    findLeftBehind(
      layoutOf(at),
      PLACE,
      { installed: undefined, removed: removedRowOf({ slug, snapshots }), version: null },
      MARKETPLACE,
    )

  it('is the newest snapshot that holds what belongs to the host', () => {
    assert.equal(leftBy('greeter'), `${root}/.hub-deploy/snapshots/plugins/greeter/2-2.0`)
  })

  it('is nothing where none holds any, or it is of another origin', () => {
    assert.equal(leftBy('greeter', [snapshotOf('3-3.0')]), undefined)
    assert.equal(leftBy('other'), undefined)
    assert.equal(leftBy('greeter', [holding('1-1.0', { origin: { ...MARKETPLACE, slug: 'other' } })]), undefined)
  })

  it('is of this origin also in the row of another', () => {
    const snapshots = [holding('1-1.0', { origin: MARKETPLACE }), holding('2-2.0')]
    assert.equal(leftBy('other', snapshots), `${root}/.hub-deploy/snapshots/plugins/greeter/1-1.0`)
  })

  it('is nothing where something is in the place, which has its own', t => {
    const occupied = temporaryDirectory(t)
    mkdirSync(join(occupied, 'plugins/greeter'), { recursive: true })
    assert.equal(leftBy('greeter', undefined, occupied), undefined)
  })
})
