import { performance } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { DeploymentError, toDeployError } from '../../core/errors.ts'
import type { HostHealthcheck } from '../../core/host-config.ts'
import type { Log } from '../../core/log.ts'
import type { Service } from '../supervisors/service.ts'
import { readServiceState } from '../supervisors/supervise.ts'
import { expectVersion, type Healthcheck } from './healthchecks.ts'
import { type Finding, runProbe } from './probe.ts'

/** Without a check in the host config, the supervisor's word must hold this long, or for half of a shorter time-out. */
const SUPERVISOR_STABLE_SECONDS = 3
/** A single look that takes longer has found nothing healthy; there may be time for another. */
const LOOK_TIMEOUT_MS = 10_000
const DEFAULT_INTERVAL_SECONDS = 1
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
 * check's `stable_for`. Returns the last evidence; throws DeploymentError `unhealthy` with it when no try gets there.
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

/** What is not healthy, one sentence each; for a version that is back. */
export async function findUnhealthy(
  healthchecks: readonly Healthcheck[],
  version: string | null,
  log: Log,
): Promise<string[]> {
  const { signal } = new AbortController()
  const problems: string[] = []
  for (const healthcheck of healthchecks) {
    try {
      const once = onceBriefly(healthcheck)
      log.info(`${once.id} is healthy again. ${await checkHealth({ healthcheck: once, version, log, signal })}`)
    } catch (error) {
      problems.push(toDeployError(error).message)
    }
  }
  return problems
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
  const deadline = performance.now() + healthcheck.timeout_seconds * 1000
  const stableMs =
    (check?.stableForSeconds ?? Math.min(SUPERVISOR_STABLE_SECONDS, healthcheck.timeout_seconds / 2)) * 1000
  const pauseMs = (check?.intervalSeconds ?? DEFAULT_INTERVAL_SECONDS) * 1000
  let healthySince: number | undefined
  for (;;) {
    const lookMs = Math.max(1, Math.min(LOOK_TIMEOUT_MS, deadline - performance.now()))
    const finding = await look(healthcheck.service, check, lookMs, signal)
    const now = performance.now()
    healthySince = finding.healthy ? (healthySince ?? now) : undefined
    if (healthySince !== undefined && now - healthySince >= stableMs) return finding
    if (now + pauseMs >= deadline) return notStable(finding, stableMs)
    await setTimeout(pauseMs, undefined, { signal })
  }
}

async function look(
  service: Service | null,
  check: HostHealthcheck | undefined,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Finding> {
  const state = service && (await readServiceState(service, signal, timeoutMs))
  if (state !== null && !state.running) return { healthy: false, evidence: state.evidence }
  if (check === undefined) return { healthy: true, evidence: state?.evidence ?? '' }
  return runProbe(check.probe, timeoutMs, signal)
}

function notStable(finding: Finding, stableMs: number): Finding {
  if (!finding.healthy) return finding
  return { healthy: false, evidence: `healthy, but not for ${stableMs / 1000} s without a break: ${finding.evidence}` }
}
