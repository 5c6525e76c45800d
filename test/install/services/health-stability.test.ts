import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { beginStreak, type Healthcheck, paceOf } from '../../../src/install/services/health.ts'

const SERVICE = { supervisor: 'docker', container: 'web' } as const

function healthcheckOf(timeout: number, isSupervised: boolean, check: [interval: number, stableFor: number] | null) {
  return {
    id: 'web',
    service: isSupervised ? SERVICE : null,
    check: check && {
      probe: { type: 'tcp', address: 'h:1' },
      intervalSeconds: check[0],
      stableForSeconds: check[1],
    },
    timeout_seconds: timeout,
    retries: 0,
  } satisfies Healthcheck
}

describe('paceOf', () => {
  const rows: [string, Healthcheck, { stableMs: number; intervalMs: number }][] = [
    ['a supervisor alone', healthcheckOf(30, true, null), { stableMs: 3000, intervalMs: 1000 }],
    ['a supervisor alone, 4 s', healthcheckOf(4, true, null), { stableMs: 2000, intervalMs: 1000 }],
    ['a supervisor alone, 1 s', healthcheckOf(1, true, null), { stableMs: 500, intervalMs: 250 }],
    ['a check alone', healthcheckOf(30, false, [2, 5]), { stableMs: 5000, intervalMs: 2000 }],
    ['a check alone with no stable_for', healthcheckOf(30, false, [1, 0]), { stableMs: 0, intervalMs: 1000 }],
    ['both, the check shorter', healthcheckOf(30, true, [1, 0]), { stableMs: 3000, intervalMs: 1000 }],
    ['both, the check longer', healthcheckOf(30, true, [1, 5]), { stableMs: 5000, intervalMs: 1000 }],
    ['an interval as long as the timeout', healthcheckOf(10, false, [10, 0]), { stableMs: 0, intervalMs: 2500 }],
  ]
  for (const [name, healthcheck, { stableMs, intervalMs }] of rows) {
    it(`${name}: ${stableMs} ms without a break, a probe every ${intervalMs} ms`, () => {
      assert.deepEqual(paceOf(healthcheck), { timeoutMs: healthcheck.timeout_seconds * 1000, stableMs, intervalMs })
    })
  }
})

describe('beginStreak', () => {
  type Probe = [healthy: boolean, ...run: (string | null)[]]
  const rows: [string, Probe[], healthyMs: number | undefined, starts: number][] = [
    [
      'lasts as long as every probe passes',
      [
        [true, 'a'],
        [true, 'a'],
        [true, 'a'],
      ],
      2000,
      0,
    ],
    ['does not exist before the first probe', [], undefined, 0],
    [
      'ends with a probe that fails',
      [
        [true, 'a'],
        [false, 'a'],
      ],
      undefined,
      0,
    ],
    [
      'begins again after a failed probe',
      [
        [true, 'a'],
        [false, 'a'],
        [true, 'a'],
        [true, 'a'],
      ],
      1000,
      0,
    ],
    [
      'begins again with a start, even if every probe finds the service healthy',
      [
        [true, 'a'],
        [true, 'b'],
        [true, 'b'],
      ],
      1000,
      1,
    ],
    [
      'never lasts while the service starts over and over',
      [
        [true, 'a'],
        [true, 'b'],
        [true, 'c'],
      ],
      0,
      2,
    ],
    [
      'counts a start that followed a failed probe',
      [
        [true, 'a'],
        [false, null],
        [true, 'b'],
      ],
      0,
      1,
    ],
    [
      'does not count an unknown run as a start',
      [
        [true, 'a'],
        [true, null],
        [true, 'a'],
      ],
      2000,
      0,
    ],
    [
      'lasts if each fact of the run is unknown once',
      [
        [true, 'a', '3'],
        [true, null, '3'],
        [true, 'a', null],
        [true, 'a', '3'],
      ],
      3000,
      0,
    ],
    [
      'begins again with a fact that has changed while another one is unknown',
      [
        [true, 'a', '3'],
        [true, null, '4'],
        [true, 'a', '4'],
      ],
      1000,
      1,
    ],
    [
      'counts a start once if one fact changes while the other is unknown',
      [
        [true, 'a', '3'],
        [true, 'b', null],
        [true, 'b', '0'],
        [true, 'b', '0'],
      ],
      2000,
      1,
    ],
    [
      'begins again when a fact changes that was unknown at first',
      [
        [true, 'a', null],
        [true, 'a', '3'],
        [true, 'a', '4'],
      ],
      0,
      1,
    ],
    [
      'lasts even if no run is known',
      [
        [true, null],
        [true, null],
      ],
      1000,
      0,
    ],
  ]
  for (const [name, probes, healthyMs, starts] of rows) {
    it(name, () => {
      const streak = beginStreak()
      for (const [second, [healthy, ...run]] of probes.entries()) streak.add({ healthy, run }, second * 1000)
      const lastMs = Math.max(0, probes.length - 1) * 1000
      assert.deepEqual([streak.healthyMs(lastMs), streak.starts], [healthyMs, starts])
    })
  }
})
