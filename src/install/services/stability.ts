import type { Healthcheck } from './healthchecks.ts'

/**
 * How long a supervisor must report a service as running, but at most half of the timeout: a service that crashes while
 * it starts is reported as running at first.
 */
const SUPERVISOR_STABLE_MS = 3000
const DEFAULT_INTERVAL_MS = 1000
/** At least this many intervals fit into a timeout, however long the configured interval is. */
const MIN_PROBES = 4

export interface Pace {
  timeoutMs: number
  /** How long a service must be healthy without a break. */
  stableMs: number
  /** The longest time between two probes. */
  intervalMs: number
}

/** Returns the pace of one attempt. */
export function paceOf({ service, check, timeout_seconds }: Healthcheck): Pace {
  const timeoutMs = timeout_seconds * 1000
  const floorMs = service === null ? 0 : Math.min(SUPERVISOR_STABLE_MS, timeoutMs / 2)
  return {
    timeoutMs,
    stableMs: Math.max(floorMs, (check?.stableForSeconds ?? 0) * 1000),
    intervalMs: Math.min(check === null ? DEFAULT_INTERVAL_MS : check.intervalSeconds * 1000, timeoutMs / MIN_PROBES),
  }
}

/** The result of one probe of a service. */
export interface Sight {
  healthy: boolean
  /**
   * Facts about the service's current run, always in the same order: a fact that changes shows a new start. A fact that
   * is not known is null.
   */
  run: readonly (string | null)[]
}

export interface Streak {
  add(sight: Sight, nowMs: number): void
  /** Returns how long the service has been healthy without a break; undefined if the last probe failed. */
  healthyMs(nowMs: number): number | undefined
  /** The number of new starts that the probes have detected. */
  readonly starts: number
}

/** Measures how long a service has been healthy without a break. A new start is a break, even if every probe passes. */
export function beginStreak(): Streak {
  let healthySince: number | undefined
  let lastRun: Sight['run'] = []
  let starts = 0
  return {
    get starts() {
      return starts
    },
    add({ healthy, run }, nowMs) {
      const isNewRun = run.some((fact, index) => fact !== null && fact !== (lastRun[index] ?? fact))
      if (isNewRun) starts++
      // The other facts of an earlier run say nothing about this run.
      if (isNewRun || lastRun.length === 0) lastRun = run
      else lastRun = lastRun.map((fact, index) => run[index] ?? fact)
      const since = isNewRun ? nowMs : (healthySince ?? nowMs)
      healthySince = healthy ? since : undefined
    },
    healthyMs: nowMs => (healthySince === undefined ? undefined : nowMs - healthySince),
  }
}
