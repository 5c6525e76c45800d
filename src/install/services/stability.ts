import type { Healthcheck } from './healthchecks.ts'

/** A supervisor's word must hold this long, or for half of a shorter time-out: what crashes at its start runs at first. */
const SUPERVISOR_STABLE_MS = 3000
const DEFAULT_INTERVAL_MS = 1000
/** So many looks fit into a time-out at least, however long the interval. */
const MIN_LOOKS = 4

export interface Pace {
  timeoutMs: number
  /** How long a service must be healthy without a break. */
  stableMs: number
  /** Between looks, at most. */
  intervalMs: number
}

/** How a service is watched in one try. */
export function paceOf({ service, check, timeout_seconds }: Healthcheck): Pace {
  const timeoutMs = timeout_seconds * 1000
  const floorMs = service === null ? 0 : Math.min(SUPERVISOR_STABLE_MS, timeoutMs / 2)
  return {
    timeoutMs,
    stableMs: Math.max(floorMs, (check?.stableForSeconds ?? 0) * 1000),
    intervalMs: Math.min(check === null ? DEFAULT_INTERVAL_MS : check.intervalSeconds * 1000, timeoutMs / MIN_LOOKS),
  }
}

export interface Streak {
  /** Takes in what a look at this time found; `run` is which run of the service it saw, null where that is not known. */
  add(healthy: boolean, run: string | null, nowMs: number): void
  /** For how long the looks so far have found it healthy without a break; undefined when the last one did not. */
  heldMs(nowMs: number): number | undefined
  /** How often it was started in between. */
  readonly starts: number
}

/** How long a service is healthy without a break; that it was started again is a break, even if each look finds it running. */
export function beginStreak(): Streak {
  let healthySince: number | undefined
  let lastRun: string | null = null
  let starts = 0
  return {
    get starts() {
      return starts
    },
    add(healthy, run, nowMs) {
      const isOther = run !== null && lastRun !== null && run !== lastRun
      if (isOther) starts++
      lastRun = run ?? lastRun
      const since = isOther ? nowMs : (healthySince ?? nowMs)
      healthySince = healthy ? since : undefined
    },
    heldMs: nowMs => (healthySince === undefined ? undefined : nowMs - healthySince),
  }
}
