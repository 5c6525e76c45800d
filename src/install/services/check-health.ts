import { performance } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import type { HostHealthcheck } from '../../core/plan/host-config.ts'
import { expectVersion, type Healthcheck, type RestoredCheck } from './healthchecks.ts'
import { type Finding, runProbe } from './probe.ts'
import type { Service } from './service.ts'
import { beginStreak, paceOf } from './stability.ts'
import { readServiceRun, readServiceState } from './supervise.ts'

/** A single look that takes longer has found nothing healthy; there may be time for another. */
const LOOK_TIMEOUT_MS = 10_000
/** With less time left there is no look: that it was cut short would hide what the last one found. */
const SHORTEST_LOOK_MS = 200
const MAX_RESTORED_SECONDS = 60

export interface HealthRequest {
  healthcheck: Healthcheck
  /** Replaces `{version}` in the check's `body`. */
  version: string | null
  log: Log
  signal: AbortSignal
}

/**
 * Waits until the supervisor says that the service runs and the configured check holds, both without a break for the
 * check's `stable_for`, and with a supervisor for 3 s or half of the time-out; a start that is noticed is a break.
 * Returns the last evidence; throws DeploymentError `unhealthy` with it when no try gets there.
 */
export async function checkHealth(request: HealthRequest): Promise<string> {
  const { id, timeout_seconds: seconds, retries } = request.healthcheck
  let finding: Finding = { healthy: false, evidence: 'nothing was looked at' }
  for (let attempt = 1; attempt <= retries + 1; attempt++) {
    finding = await waitForHealth(request)
    if (finding.healthy) return finding.evidence
    request.log.info(`Try ${attempt} of ${retries + 1}: ${id} is not healthy. ${finding.evidence}`)
  }
  throw new DeploymentError(
    'unhealthy',
    `${id} was not healthy within ${seconds} s (tries: ${retries + 1}): ${finding.evidence}`,
  )
}

/** What is not healthy, one sentence each; for a version that is back. All are looked at together, so that it takes no longer than one. */
export async function findUnhealthy(checks: readonly RestoredCheck[], log: Log): Promise<string[]> {
  const { signal } = new AbortController()
  const findings = checks.map(async ({ previous_version: version, ...healthcheck }) => {
    try {
      const once = onceBriefly(healthcheck)
      log.info(`${once.id} is healthy again. ${await checkHealth({ healthcheck: once, version, log, signal })}`)
      return []
    } catch (error) {
      return [toDeployError(error).message]
    }
  })
  return (await Promise.all(findings)).flat()
}

/** One try of a minute, or what `stable_for` needs: who takes back, or recovers, must come to an end. */
function onceBriefly(healthcheck: Healthcheck): Healthcheck {
  const stable = healthcheck.check?.stableForSeconds ?? 0
  const seconds = Math.min(
    healthcheck.timeout_seconds,
    Math.max(MAX_RESTORED_SECONDS, stable + MAX_RESTORED_SECONDS / 2),
  )
  return { ...healthcheck, retries: 0, timeout_seconds: seconds }
}

async function waitForHealth({ healthcheck, version, signal }: HealthRequest): Promise<Finding> {
  const check = expectVersion(healthcheck.check, version)
  const { timeoutMs, stableMs, intervalMs } = paceOf(healthcheck)
  const deadline = performance.now() + timeoutMs
  const streak = beginStreak()
  for (;;) {
    const lookMs = Math.max(1, Math.min(LOOK_TIMEOUT_MS, deadline - performance.now()))
    const { run, ...finding } = await look(healthcheck.service, check, lookMs, signal)
    const now = performance.now()
    streak.add(finding.healthy, run, now)
    const heldMs = streak.heldMs(now)
    if (heldMs !== undefined && heldMs >= stableMs) return tellStarts(finding, streak.starts)
    const pauseMs = heldMs === undefined ? intervalMs : Math.min(intervalMs, stableMs - heldMs)
    if (now + pauseMs + SHORTEST_LOOK_MS >= deadline) return tellStarts(notStable(finding, stableMs), streak.starts)
    await setTimeout(pauseMs, undefined, { signal })
  }
}

interface Look extends Finding {
  /** Which run of the service was seen; null where that is not known. */
  run: string | null
}

async function look(
  service: Service | null,
  check: HostHealthcheck | undefined,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Look> {
  const state = service && (await readServiceState(service, signal, timeoutMs))
  if (state !== null && !state.running) return { healthy: false, evidence: state.evidence, run: null }
  const run = service && (await readServiceRun(service, signal, timeoutMs))
  if (check === undefined) return { healthy: true, evidence: state?.evidence ?? '', run }
  return { ...(await runProbe(check.probe, timeoutMs, signal)), run }
}

function notStable(finding: Finding, stableMs: number): Finding {
  if (!finding.healthy) return finding
  return { healthy: false, evidence: `healthy, but not for ${stableMs / 1000} s without a break: ${finding.evidence}` }
}

function tellStarts(finding: Finding, starts: number): Finding {
  if (starts === 0) return finding
  return { ...finding, evidence: `started again while it was watched (times: ${starts}); ${finding.evidence}` }
}
