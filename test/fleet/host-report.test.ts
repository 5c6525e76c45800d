import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeployError } from '../../src/core/errors.ts'
import { parseHostReports } from '../../src/fleet/host-report.ts'
import { NOW, parsed, rowOf, SUBJECT } from './host-reports.ts'

const TIME = '2026-01-02T03:04:06.789Z'

describe('parseHostReports', () => {
  it('reads the running version and the last attempt of each host', () => {
    const failed = { status: 'failed', version: '1.1.0', running_version: '1.0.0', error_message: 'unhealthy' }
    const { reports, notes, unusable } = parsed([rowOf('app-1'), rowOf('app-2', failed)])
    assert.deepEqual(reports, [
      {
        hostId: 'app-1',
        version: '1.0.0',
        attempted: '1.0.0',
        status: 'success',
        completedAt: TIME,
        receivedAt: null,
        error: null,
        isContradicted: false,
      },
      {
        hostId: 'app-2',
        version: '1.0.0',
        attempted: '1.1.0',
        status: 'failed',
        completedAt: TIME,
        receivedAt: null,
        error: 'unhealthy',
        isContradicted: false,
      },
    ])
    assert.deepEqual([notes, unusable], [[], 0])
  })

  for (const [name, more, version] of [
    ['omits the running version', { status: 'failed' }, null],
    ['reports no running version', { status: 'rolled_back', running_version: null }, null],
    ['names a malformed running version', { status: 'failed', running_version: '../../x' }, null],
    ['has an unknown status', { status: 'perhaps' }, null],
    ['has a status of another type', { status: { success: true } }, null],
    ['names a running version other than the one that succeeded', { running_version: '9.9.9' }, '1.0.0'],
    ['names a version of another type', { version: ['1.0.0'] }, null],
    ['names a malformed version', { version: '$(reboot)' }, null],
  ] as const)
    it(`reads ${version ?? 'no version'} as running if a hub ${name}`, () => {
      assert.equal(parsed([rowOf('app-1', more)]).reports[0]?.version, version)
    })

  for (const [name, time, expected] of [
    ['with an offset', '2026-01-02T05:04:06+02:00', '2026-01-02T03:04:06.000Z'],
    ['without an offset, as UTC', '2026-01-02T03:04:06.789012', TIME],
    ['on a day that does not exist', '2026-13-45T00:00:00Z', null],
    ['in words', 'yesterday', null],
    ['as a number', 1_767_323_046, null],
    ['of huge length', '2'.repeat(1_000_000), null],
  ] as const)
    it(`reads a time ${name}`, () => {
      assert.equal(parsed([rowOf('app-1', { completed_at: time })]).reports[0]?.completedAt, expected)
    })

  it('ignores reports of other plugins and services, and says so', () => {
    const { reports, notes, unusable } = parsed([
      rowOf('app-1'),
      rowOf('app-2', { slug: 'other' }),
      rowOf('app-3', { kind: 'service' }),
    ])
    assert.deepEqual([reports.map(({ hostId }) => hostId), unusable], [['app-1'], 0])
    assert.match(notes.join(), /2 reports of plugins or services other than plugin greeter/)
  })

  const old = '2026-01-01T00:00:00Z'

  it('uses the report that the hub received last if a host is listed more than once, whatever the clock of the host', () => {
    const { reports, notes } = parsed([
      rowOf('app-1', { version: '2.0.0', created_at: TIME }),
      rowOf('app-1', { version: '1.0.0', created_at: old, completed_at: '2026-01-02T11:00:00Z' }),
      rowOf('app-2'),
      rowOf('app-2', { version: 'v1.0.0', completed_at: 'never' }),
    ])
    assert.deepEqual(
      reports.map(({ hostId, version }) => [hostId, version]),
      [
        ['app-1', '2.0.0'],
        ['app-2', '1.0.0'],
      ],
    )
    assert.equal(notes.length, 1)
    assert.match(notes.join(), /2 others were ignored/)
  })

  for (const [name, first, second] of [
    ['with the same time', {}, { version: '2.0.0' }],
    ['without times', { created_at: null }, { created_at: null, version: '2.0.0' }],
    [
      'of which the hub says only when the host completed them',
      { created_at: null },
      { created_at: null, completed_at: old, version: '2.0.0' },
    ],
    ['of which one has no valid time', {}, { created_at: 'soon', version: '2.0.0' }],
    ['of which one has a time in the future', {}, { created_at: '2999-01-01T00:00:00Z', version: '2.0.0' }],
    [
      'with times in the future',
      { created_at: '2998-01-01T00:00:00Z' },
      { created_at: '2999-01-01T00:00:00Z', version: '2.0.0' },
    ],
    ['with the same time, of which one failed', {}, { status: 'failed', running_version: '1.0.0' }],
    [
      'with the same time and two running versions',
      { status: 'failed', running_version: '1.0.0' },
      { status: 'failed' },
    ],
  ] as const)
    it(`reads no version of a host with contradictory reports ${name}, whatever their order`, () => {
      const at = (more: Readonly<Record<string, unknown>>) => rowOf('app-1', { created_at: TIME, ...more })
      const rows = [at(first), at(second)]
      for (const order of [rows, rows.toReversed()]) {
        const { reports, notes } = parsed([...order, at({ created_at: old, completed_at: old, version: '3.0.0' })])
        const { version, attempted, status, isContradicted } = reports[0] ?? {}
        assert.deepEqual([reports.length, version, attempted, status, isContradicted], [1, null, null, 'unknown', true])
        assert.match(notes.join(), /contradict each other.*: app-1\./)
      }
    })

  it('names the hosts with a time in the future, but no host whose clock is only a little ahead', () => {
    const { reports, notes } = parsed([
      rowOf('app-1', { completed_at: '2026-01-02T12:04:00Z' }),
      rowOf('app-2', { completed_at: '2999-01-01T00:00:00Z' }),
    ])
    assert.deepEqual(
      reports.map(({ version }) => version),
      ['1.0.0', '1.0.0'],
    )
    assert.match(notes.join(), /a time in the future.*: app-2\.$/)
  })

  for (const [name, row] of [
    ['null', null],
    ['a list', []],
    ['a string', 'app-1'],
    ['no host', rowOf(undefined)],
    ['a host without a name', rowOf('')],
    ['a host with a line break', rowOf('app-1\napp-2')],
    ['a host whose name is a megabyte long', rowOf('x'.repeat(1_000_000))],
    ['a host that is a number', rowOf(7)],
    ['no kind', rowOf('app-1', { kind: undefined })],
    ['a slug of another type', rowOf('app-1', { slug: ['greeter'] })],
  ] as const)
    it(`counts a report as unusable: ${name}`, () => {
      const { reports, notes, unusable } = parsed([row, rowOf('app-9')])
      assert.deepEqual([reports.length, unusable], [1, 1])
      assert.match(notes.join(), /1 report without a usable/)
    })

  it('cleans and cuts an error message, and removes secrets from it', () => {
    const message = `::error::\u001b[31mkey-of-us\n${'x'.repeat(10_000)}`
    const redact = (text: string): string => text.replaceAll('key-of-us', '***')
    const { reports } = parseHostReports([rowOf('app-1', { error_message: message })], SUBJECT, { redact, now: NOW })
    const error = reports[0]?.error ?? ''
    assert.ok(error.length < 320 && error.endsWith('(cut)'), error)
    for (const text of ['\u001b', '\n', 'key-of-us']) assert.ok(!error.includes(text), error)
  })

  for (const [name, body] of [
    ['a body that is not JSON', undefined],
    ['null', null],
    ['an object', { hosts: [] }],
    ['a string', 'hosts'],
    ['more than 100,000 reports', Array.from({ length: 100_001 }, () => 0)],
  ] as const)
    it(`refuses ${name}`, () => {
      assert.throws(
        () => parsed(body),
        (error: unknown) => error instanceof DeployError && error.code === 'bad_response',
      )
    })
})
