import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { buildFleet } from '../../../src/fleet/fleet.ts'
import { buildFleetSummary, describeFleet } from '../../../src/runner/summaries/fleet.ts'
import { NOW, parsed, rowOf } from '../../fleet/host-reports.ts'

const HOSTILE = 'x|y`z<img src=x onerror=alert(1)> [a](http://b) ::error:: ##[group] @team **b** \\| &lt;'

function summaryOf(
  rows: readonly unknown[],
  expectVersion: string | undefined,
  expectHosts?: readonly string[],
  stoppedAt?: string,
) {
  const fleet = buildFleet(parsed(rows), { expectVersion, expectHosts, maxAgeMs: undefined, stoppedAt }, NOW)
  const isGate = expectVersion !== undefined
  return buildFleetSummary({ slug: 'greeter', fleet, error: undefined, isGate, stoppedAt, notes: [], now: NOW })
}

describe('buildFleetSummary', () => {
  it('shows the result, the counts, and the hosts: failed, then behind, then in sync, each in natural order', () => {
    const failed = { status: 'failed', version: '2.0.0', running_version: '1.0.0', error_message: 'unhealthy' }
    const rows = [
      rowOf('app-10'),
      rowOf('app-2', { completed_at: '2026-01-02T11:59:30Z', version: '2.0.0' }),
      rowOf('app-9', failed),
      rowOf('app-1', { completed_at: '2025-12-20T00:00:00Z' }),
    ]
    assert.equal(
      summaryOf(rows, '2.0.0', ['app-1', 'app-2', 'app-3', 'app-9', 'app-10']),
      `### ❌ 1 of 5 hosts is known to run greeter 2.0.0

1.0.0: 3 · 2.0.0: 1 · never reported: 1

| Host | Runs | Last deployment | Reported |
| --- | --- | --- | --- |
| ⚠️ app-9 | 1.0.0 | failed 2.0.0: unhealthy | 8 h ago |
| ⚠️ app-1 | 1.0.0 | success 1.0.0 | 13 days ago |
| ⚠️ app-3 | never reported | none |  |
| ⚠️ app-10 | 1.0.0 | success 1.0.0 | 8 h ago |
| app-2 | 2.0.0 | success 2.0.0 | just now |
`,
    )
  })

  it('names the slug of an unknown fleet only if the slug is known', () => {
    const facts = { fleet: undefined, error: undefined, isGate: true, stoppedAt: undefined, notes: [], now: NOW }
    for (const [slug, subject] of [
      ['greeter', 'the hosts of greeter'],
      [undefined, 'the hosts'],
    ] as const)
      assert.equal(describeFleet({ ...facts, slug }).sentence, `What runs on ${subject} is not known`)
  })

  it('says at which host a rollout stopped, whatever else is known', () => {
    const facts = { slug: 'greeter', fleet: undefined, error: undefined, isGate: true, notes: [], now: NOW }
    for (const [summary, sentence] of [
      [summaryOf([rowOf('app-1'), rowOf('app-2')], '2.0.0', undefined, 'app-1'), 'Stopped at app-1; 1 host untouched'],
      [summaryOf([rowOf('app-1')], '1.0.0', undefined, 'app-1'), 'Stopped at app-1. 1 host runs greeter 1.0.0'],
      [
        buildFleetSummary({ ...facts, stoppedAt: 'app-1' }),
        'Stopped at app-1. What runs on the hosts of greeter is not known',
      ],
    ] as const)
      assert.ok(summary.startsWith(`### ❌ ${sentence}\n`), summary)
  })

  it('names no version if the hub knows none', () => {
    assert.match(
      summaryOf([], undefined, ['app-1', 'app-2']),
      /^### ⚠️ No host is known to run any version of greeter\n/,
    )
  })

  it('shows hostile text without giving it any effect', () => {
    const summary = summaryOf(
      [rowOf(HOSTILE, { error_message: HOSTILE, status: HOSTILE, completed_at: HOSTILE })],
      '2.0.0',
    )
    const harmless = summaryOf(
      [rowOf('plain', { error_message: 'plain', status: 'plain', completed_at: 'plain' })],
      '2.0.0',
    )
    for (const character of ['|', '<', '>', '`', '*', '[', '@', '\\', '##['])
      assert.equal(summary.split(character).length, harmless.split(character).length, character)
    assert.match(summary, /onerror/)
  })

  it('stays far below a megabyte, whatever 100,000 hosts are called', () => {
    const rows = Array.from({ length: 100_000 }, (_, index) =>
      rowOf(`${index}${'|'.repeat(240)}`, {
        version: `1.0.${index}`,
        status: 'failed',
        error_message: '|'.repeat(300),
      }),
    )
    const summary = summaryOf(rows, '2.0.0')
    assert.ok(Buffer.byteLength(summary) < 600_000, String(summary.length))
    assert.match(summary, /And 99,800 more hosts\./)
  })
})
