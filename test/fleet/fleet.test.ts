import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import {
  buildFleet,
  describeStop,
  type Fleet,
  type FleetQuestion,
  hostsByVersion,
  outOfSync,
} from '../../src/fleet/fleet.ts'
import { NOW, parsed, rowOf, SUBJECT } from './host-reports.ts'

const DAY_MS = 86_400_000

function fleetOf(rows: readonly unknown[], question: Partial<FleetQuestion> = {}): Fleet {
  const none = { expectVersion: undefined, expectHosts: undefined, maxAgeMs: undefined, stoppedAt: undefined }
  return buildFleet(parsed(rows), { ...none, ...question }, NOW)
}

function standings({ hosts }: Fleet): string[] {
  return hosts.map(({ id, standing }) => `${id} ${standing}`)
}

describe('buildFleet', () => {
  it('lists the hosts in natural order', () => {
    const names = ['web-10', 'app-2', 'app-10', 'APP-3', 'app-1', 'web-9']
    const { hosts } = fleetOf(names.map(name => rowOf(name)))
    assert.deepEqual(
      hosts.map(({ id }) => id),
      ['app-1', 'app-2', 'APP-3', 'app-10', 'web-9', 'web-10'],
    )
  })

  it('ignores the leading v of a version, in the reports and in the expected version', () => {
    const rows = [rowOf('app-1', { version: 'v1.0.0' }), rowOf('app-2')]
    for (const expectVersion of ['1.0.0', 'v1.0.0']) assert.ok(fleetOf(rows, { expectVersion }).inSync)
  })

  const IN_PROGRESS = { status: 'in_progress', version: 7, running_version: '2.0.0' }
  const failed = (version: string, running: string | null) => ({ status: 'failed', version, running_version: running })
  for (const [name, row, standing] of [
    ['on the expected version', rowOf('app-1', { version: '2.0.0' }), 'current'],
    ['on another version', rowOf('app-1'), 'other'],
    ['on the expected version, after a later one failed', rowOf('app-1', failed('3.0.0', '2.0.0')), 'current'],
    [
      'on the expected version, after a redeployment of that version failed',
      rowOf('app-1', failed('2.0.0', '2.0.0')),
      'failed',
    ],
    ['on another version, after the expected one failed', rowOf('app-1', failed('2.0.0', '1.0.0')), 'other'],
    ['on an unknown version', rowOf('app-1', failed('2.0.0', null)), 'unknown'],
    ['on the expected version, after an unreadable version failed', rowOf('app-1', failed('x y', '2.0.0')), 'unknown'],
    ['on the expected version, during a deployment whose version is a number', rowOf('app-1', IN_PROGRESS), 'unknown'],
    ['on another version, after an unreadable version failed', rowOf('app-1', failed('x y', '1.0.0')), 'other'],
  ] as const)
    it(`judges a host ${name}`, () => {
      const fleet = fleetOf([row], { expectVersion: '2.0.0' })
      assert.deepEqual(standings(fleet), [`app-1 ${standing}`])
      assert.equal(fleet.inSync, standing === 'current')
      assert.deepEqual(fleet.outdated, standing === 'current' ? [] : ['app-1'])
    })

  it('is not in sync with a host whose reports contradict each other, and says so', () => {
    const rows = [rowOf('app-1', { version: '2.0.0' }), rowOf('app-1')]
    for (const order of [rows, rows.toReversed()]) {
      const fleet = fleetOf([...order, rowOf('app-2', { version: '2.0.0' })], { expectVersion: '2.0.0' })
      assert.deepEqual(standings(fleet), ['app-1 unknown', 'app-2 current'])
      assert.deepEqual([fleet.inSync, fleet.outdated], [false, ['app-1']])
      assert.match(outOfSync(fleet, SUBJECT).message, /app-1 \(unknown: its reports contradict each other\)/)
    }
  })

  it('names the version that a host may be running if the last report does not say which version was deployed', () => {
    const fleet = fleetOf([rowOf('app-1', IN_PROGRESS)], { expectVersion: '2.0.0' })
    assert.match(
      outOfSync(fleet, SUBJECT).message,
      /app-1 \(perhaps 2\.0\.0: its last report says so, but has the status unknown and does not say which version that deployment was to install\)/,
    )
  })

  it('says what is wrong with the last report of a host that is not known to run the version', () => {
    const rows = [
      rowOf('app-1', { version: 'x y' }),
      rowOf('app-2', failed('2.0.0', null)),
      rowOf('app-3', { completed_at: '2999-01-01T00:00:00Z' }),
      rowOf('app-4', { completed_at: null }),
    ]
    const { message } = outOfSync(fleetOf(rows, { expectVersion: '1.0.0', maxAgeMs: 3_600_000 }), SUBJECT)
    assert.match(message, /app-1 \(unknown: its last report says success and names no usable version\)/)
    assert.match(message, /app-2 \(unknown: its last report says failed\)/)
    assert.match(message, /app-3 \(1\.0\.0, but silent: last report at 2999-01-01T00:00:00\.000Z\)/)
    assert.match(message, /app-4 \(1\.0\.0, but silent: last report at an unknown time\)/)
  })

  it('names expected hosts that never reported, and leaves out hosts that are not expected', () => {
    const rows = [rowOf('app-1'), rowOf('app-2'), rowOf('old-1', { version: '0.1.0' })]
    const fleet = fleetOf(rows, { expectVersion: '1.0.0', expectHosts: ['app-3', 'app-1'] })
    assert.deepEqual(standings(fleet), ['app-1 current', 'app-3 never'])
    assert.deepEqual([fleet.inSync, fleet.outdated], [false, ['app-3']])
    assert.match(
      outOfSync(fleet, SUBJECT).message,
      /^greeter 1\.0\.0 is known to run on 1 of 2 hosts, but not on app-3 \(never reported\)\./,
    )
  })

  it('names the only host if it is not known to run the version', () => {
    const fleet = fleetOf([rowOf('app-1')], { expectVersion: '2.0.0' })
    assert.match(
      outOfSync(fleet, SUBJECT).message,
      /^The only host is not known to run greeter 2\.0\.0: app-1 \(1\.0\.0\)\./,
    )
  })

  it('counts the hosts that are known to run the version only if there are any', () => {
    const messageOf = (...rows: unknown[]) => outOfSync(fleetOf(rows, { expectVersion: '2.0.0' }), SUBJECT).message
    assert.match(
      messageOf(rowOf('app-1'), rowOf('app-2')),
      /^Neither of the 2 hosts is known to run greeter 2\.0\.0: app-1 \(1\.0\.0\), app-2 \(1\.0\.0\)\. Deploy/,
    )
    assert.match(messageOf(rowOf('app-1\u0000')), /^No host is known to run greeter 2\.0\.0\. Reports from the hub/)
    assert.match(
      messageOf(rowOf('app-1', { version: '2.0.0' }), rowOf('app-1\u0000')),
      /^greeter 2\.0\.0 is known to run on 1 host\. Reports from the hub/,
    )
    assert.match(
      messageOf(rowOf('app-1'), rowOf('app-2'), rowOf('app-3')),
      /^None of the 3 hosts is known to run greeter 2\.0\.0: app-1 \(1\.0\.0\), app-2/,
    )
  })

  it('gives a remedy for each reason, and no other', () => {
    const remedies = {
      deploy: /Deploy to the hosts in the output outdated, or give them more time/,
      silent: /Find out why the silent hosts have no recent report, or raise max-age-hours\./,
      unusable: /Ask the hub's operator about the unusable reports, or list the hosts in expect-hosts\./,
    }
    const old = rowOf('app-1', { completed_at: '2000-01-01T00:00:00Z' })
    const question = { expectVersion: '1.0.0', maxAgeMs: 3_600_000 }
    for (const [fleet, expected] of [
      [fleetOf([rowOf('app-1')], { expectVersion: '2.0.0' }), ['deploy']],
      [fleetOf([old], question), ['silent']],
      [fleetOf([rowOf('app-1\u0000')], { expectVersion: '1.0.0' }), ['unusable']],
    ] as const) {
      const { message } = outOfSync(fleet, SUBJECT)
      assert.deepEqual(
        Object.entries(remedies).flatMap(([name, remedy]) => (remedy.test(message) ? [name] : [])),
        expected,
      )
    }
  })

  const tried = (status: string, version = '2.0.0') => ({ status, version, running_version: '1.0.0' })
  for (const [name, row, stoppedAt] of [
    ['rolled the version back', rowOf('app-1', tried('rolled_back')), undefined],
    ['failed to install the version', rowOf('app-1', tried('failed')), undefined],
    ['failed before it knew the latest version', rowOf('app-1', tried('failed', 'latest')), undefined],
    ['was rolled back by a rollout that stopped there', rowOf('app-1'), 'app-1'],
  ] as const)
    it(`does not advise to deploy a version again while a host ${name}`, () => {
      const rows = [row, rowOf('app-2'), rowOf('app-3')]
      const { message } = outOfSync(fleetOf(rows, { expectVersion: '2.0.0', stoppedAt }), SUBJECT)
      assert.match(message, /\. Correct the cause on app-1 before you deploy 2\.0\.0 again\.$/)
      assert.doesNotMatch(message, /Deploy to/)
    })

  it('counts as untouched by a stopped rollout only hosts without an attempt of its version', () => {
    const rows = [
      rowOf('app-1', tried('rolled_back')),
      rowOf('app-2', { version: '2.0.0' }),
      rowOf('app-3', tried('failed')),
      rowOf('app-4', tried('failed', '3.0.0')),
      rowOf('app-5', tried('in_progress')),
      rowOf('app-6', { version: 'x y' }),
      rowOf('app-7'),
    ]
    const expectHosts = ['app-1', 'app-2', 'app-3', 'app-4', 'app-5', 'app-6', 'app-7', 'app-8']
    const fleet = fleetOf(rows, { expectVersion: '2.0.0', expectHosts, stoppedAt: 'app-1' })
    const untouched = fleet.hosts.filter(({ attempt }) => attempt === 'untouched').map(({ id }) => id)
    assert.deepEqual(untouched, ['app-4', 'app-7', 'app-8'])
    assert.equal(describeStop('app-1', fleet), 'Stopped at app-1; 3 hosts untouched')
  })

  it('is not in sync if the hub knows no host', () => {
    const fleet = fleetOf([], { expectVersion: '1.0.0' })
    assert.equal(fleet.inSync, false)
    assert.match(outOfSync(fleet, SUBJECT).message, /knows no host/)
    assert.equal(fleetOf([]).inSync, false)
  })

  it('is not in sync with a host that cannot be identified, unless all expected hosts are known', () => {
    const rows = [rowOf('app-1'), rowOf('app-1\u0000')]
    assert.equal(fleetOf(rows, { expectVersion: '1.0.0' }).inSync, false)
    assert.match(
      outOfSync(fleetOf(rows, { expectVersion: '1.0.0' }), SUBJECT).message,
      /Reports from the hub without a usable kind, slug and host_id: 1\./,
    )
    assert.equal(fleetOf(rows, { expectVersion: '1.0.0', expectHosts: ['app-1'] }).inSync, true)
  })

  for (const [name, time, standing] of [
    ['an old report', '2025-12-31T00:00:00Z', 'silent'],
    ['a report without a valid time', 'soon', 'silent'],
    ['a report from the future', '2026-01-03T00:00:00Z', 'silent'],
    ['a report from a clock that is a little ahead', '2026-01-02T12:04:00Z', 'current'],
    ['a recent report', '2026-01-02T00:00:00Z', 'current'],
  ] as const)
    it(`judges a host with ${name} by the maximum age`, () => {
      const row = rowOf('app-1', { completed_at: time })
      const fleet = fleetOf([row], { expectVersion: '1.0.0', maxAgeMs: DAY_MS })
      assert.deepEqual([standings(fleet), fleet.outdated], [[`app-1 ${standing}`], []])
      assert.equal(fleetOf([row], { expectVersion: '1.0.0' }).inSync, true)
    })

  it('judges the age of a report by the time at which the hub received it', () => {
    const question = { expectVersion: '1.0.0', maxAgeMs: DAY_MS }
    const [old, recent] = ['2025-12-31T00:00:00Z', '2026-01-02T11:00:00Z']
    assert.equal(fleetOf([rowOf('app-1', { completed_at: old, created_at: recent })], question).inSync, true)
    assert.equal(fleetOf([rowOf('app-1', { completed_at: recent, created_at: old })], question).inSync, false)
  })

  it('compares with the newest version of any host if no version is expected', () => {
    const rows = ['1.9.0', '1.10.0', '1.10.0-rc.1', 'nightly'].map((version, index) =>
      rowOf(`app-${index}`, { version }),
    )
    const fleet = fleetOf(rows.slice(0, 3))
    assert.deepEqual([fleet.target, fleet.outdated], ['1.10.0', ['app-0', 'app-2']])
    const later = rowOf('app-9', { version: 'nightly', created_at: '2026-01-02T11:00:00Z' })
    assert.equal(fleetOf([...rows.slice(0, 3), later]).target, 'nightly')
    const early = rowOf('app-9', { version: 'nightly', created_at: '2999-01-01T00:00:00Z' })
    assert.equal(fleetOf([...rows.slice(0, 3), early]).target, '1.10.0')
    const ahead = rowOf('app-9', { version: 'nightly', completed_at: '2026-01-02T11:00:00Z' })
    assert.equal(fleetOf([...rows.slice(0, 3), ahead]).target, '1.10.0')
  })

  it('gives a matrix only names that are safe there, unless the operator has listed them', () => {
    const hostile = [
      'a b',
      '$(id)',
      `$${'{{ secrets.X }}'}`,
      "x'; reboot #",
      '-rf',
      '../..',
      'a,b',
      '[self-hosted]',
      'a"',
      '.',
      'ü',
      'a\u202eb',
      'app-',
    ]
    const harmless = ['app-1', 'APP_2.example.com', '7']
    const fleet = fleetOf(
      [...hostile, ...harmless].map(host => rowOf(host)),
      { expectVersion: '2.0.0' },
    )
    assert.deepEqual(fleet.outdated, ['7', 'APP_2.example.com', 'app-1'])
    // One of the hostile names has a direction mark, which no report may have.
    assert.deepEqual([fleet.unsafe, fleet.unusable], [hostile.length - 1, 1])
    assert.equal(fleet.inSync, false)
    const chosen = fleetOf([rowOf('a b')], { expectVersion: '2.0.0', expectHosts: ['a b'] })
    assert.deepEqual([chosen.outdated, chosen.unsafe], [['a b'], 0])
  })
})

describe('the advice about hosts whose names a workflow could not use safely', () => {
  for (const [names, advice] of [
    [['a b'], /Deploy to this host, or give it more time/],
    [['a b', 'c d'], /Deploy to these hosts, or give them more time/],
  ] as const)
    it(`is in the ${names.length === 1 ? 'singular' : 'plural'} for ${names.length}`, () => {
      const fleet = fleetOf(
        names.map(name => rowOf(name)),
        { expectVersion: '9.0.0' },
      )
      assert.match(outOfSync(fleet, SUBJECT).message, advice)
    })
})

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
