import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import type { StartTimer, WireOptions } from '../../src/net/settings.ts'
import { createWire, type Wire } from '../../src/net/wire.ts'

export interface TestedWire extends Wire {
  /** The lines of its log. */
  lines: string[]
  /** The waits between attempts, in milliseconds, which the wire skips. */
  waits: number[]
}

/** A wire that records its waits instead of waiting. */
export function createTestedWire(options: Partial<WireOptions> = {}): TestedWire {
  const lines: string[] = []
  const waits: number[] = []
  const wire = createWire({
    allowHttp: false,
    userAgent: 'hub-deploy-test',
    log: line => lines.push(line),
    sleep: async ms => {
      waits.push(ms)
    },
    random: () => 0.5,
    ...options,
  })
  return { ...wire, lines, waits }
}

/** A GET with a generous deadline and no retries. */
export function get(url: string) {
  return { method: 'GET', url, retry: 'never', timeoutMs: 600_000 } as const
}

/** Timers that expire only when the test calls `expire`. */
export interface ManualTimers {
  startTimer: StartTimer
  /** The length of every timer so far, in milliseconds and in order. */
  started: number[]
  /** The lengths of the timers that are running. */
  running: () => number[]
  /** Expires the running timer of this length. Throws if no such timer is running. */
  expire: (ms: number) => void
}

export function createManualTimers(): ManualTimers {
  const started: number[] = []
  const timers = new Set<{ ms: number; expire: () => void }>()
  return {
    startTimer: (ms, expire) => {
      const timer = { ms, expire }
      timers.add(timer)
      started.push(ms)
      return () => timers.delete(timer)
    },
    started,
    running: () => [...timers].map(timer => timer.ms),
    expire: ms => {
      const timer = [...timers].find(timer => timer.ms === ms)
      if (timer === undefined) throw new Error(`Expected a running timer of ${ms} ms, found none.`)
      timers.delete(timer)
      timer.expire()
    },
  }
}

/** An empty file that is deleted after the test. */
export function openPrivateFile(t: TestContext): { fd: number; read: () => Buffer } {
  const folder = mkdtempSync(join(tmpdir(), 'hub-deploy-test-'))
  const path = join(folder, 'artifact')
  const fd = openSync(path, 'wx+')
  t.after(() => {
    closeSync(fd)
    rmSync(folder, { recursive: true })
  })
  return { fd, read: () => readFileSync(path) }
}
