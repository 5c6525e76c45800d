import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { hostsByVersion } from '../../src/fleet/hosts-by-version.ts'
import { parsed, rowOf } from './host-reports.ts'

function groupsOf(...versions: readonly string[]): [string, string[]][] {
  const { reports } = parsed(versions.map((version, index) => rowOf(`app-${index + 1}`, { version })))
  return [...hostsByVersion(reports)]
}

describe('hostsByVersion', () => {
  const newestFirst: readonly (readonly [name: string, versions: readonly string[]])[] = [
    ['a release before its candidates', ['1.0.0', '1.0.0-rc.10', '1.0.0-rc.2', '1.0.0-beta']],
    ['1.10.0 before 1.9.0', ['2.0.0-rc.1', '1.10.0', '1.9.0']],
    ['Python versions', ['1.0.post1', '1.0', '1.0rc1', '1.0.dev2']],
    ['dates', ['2024.10.01', '2024.05.20', '2024.05.03']],
    ['names without an order last', ['1.0.0', '1.0.0-rc.1', 'nightly-10', 'nightly-9', '1.0.0-fix_2']],
  ]
  for (const [name, versions] of newestFirst)
    it(`lists ${name}, whatever the order of the hosts`, () => {
      for (const order of [versions, versions.toReversed(), versions.toSorted()])
        assert.deepEqual(
          groupsOf(...order).map(([version]) => version),
          versions,
        )
    })

  it('counts a version with a leading v as the same version', () => {
    assert.deepEqual(groupsOf('v1.0.0', '1.0.0'), [['1.0.0', ['app-1', 'app-2']]])
  })

  it('does not mistake a built-in property of every object for a version', () => {
    assert.deepEqual(groupsOf('constructor', 'toString'), [
      ['toString', ['app-2']],
      ['constructor', ['app-1']],
    ])
  })
})
