import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { runNextToManager } from './user-manager.ts'

const UNITS = {
  'web.service': '[Service]\nExecStart=/bin/sleep 600\n',
  'limited.service': '[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=2\n[Service]\nExecStart=/bin/sleep 600\n',
  'crashing.service':
    '[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep 0.4\nRestart=always\nRestartSec=0\n',
}

describe('a real systemd', () => {
  it('starts, restarts, stops, restores and watches real user units', t => {
    const seen = runNextToManager(t, join(import.meta.dirname, 'systemd-session.ts'), UNITS)
    if (seen === undefined) return
    const up = { known: true, up: true, running: true }
    const down = { known: true, up: false, running: false }
    assert.deepEqual(seen, {
      before: down,
      missing: down,
      started: up,
      stopped: down,
      restored: { isRunning: true, problems: [], unrestored: [], untouched: [], isBroken: false, isFinished: true },
      restoredState: up,
      stoppedAgain: {
        isRunning: false,
        problems: [],
        unrestored: [],
        untouched: [],
        isBroken: false,
        isFinished: true,
      },
      stoppedAgainState: down,
      stoppedMissing: {
        isRunning: false,
        problems: [],
        unrestored: [],
        untouched: [],
        isBroken: false,
        isFinished: true,
      },
      differentRuns: 3,
      oneStartTooMany: 'step_failed',
      limitedRestored: {
        isRunning: true,
        problems: [],
        unrestored: [],
        untouched: [],
        isBroken: false,
        isFinished: true,
      },
      limitedRestoredState: up,
      crashing: 'unhealthy',
      steady: 'healthy',
      refusal: 'step_failed',
    })
  })
})
