import { performance } from 'node:perf_hooks'
import { setTimeout } from 'node:timers/promises'
import { DeploymentError } from '../../core/errors.ts'
import type { HostHealthcheck } from '../../core/host-config.ts'
import type { Log } from '../../core/log.ts'
import type { Service } from '../supervisors/service.ts'
import { readServiceState } from '../supervisors/supervise.ts'
import { type Finding, runProbe } from './probe.ts'

/** Without a check in the host config, the supervisor's word must hold this long. */
const SUPERVISOR_STABLE_SECONDS = 3
const DEFAULT_INTERVAL_SECONDS = 1

export interface HealthRequest {
  id: string
  service: Service | undefined
  healthcheck: HostHealthcheck | undefined
  /** For one try. */
  timeoutSeconds: number
  /** Further tries after the first. */
  retries: number
  log: Log
  signal: AbortSignal
}

/**
 * Waits until the supervisor says that the service runs and the configured check holds, both without a break for the
 * check's `stable_for`. Returns the last evidence; throws DeploymentError `unhealthy` with it when no try gets there.
 */
export async function checkHealth(request: HealthRequest): Promise<string> {
  let finding: Finding = { healthy: false, evidence: 'nothing was looked at' }
  for (let attempt = 0; attempt <= request.retries; attempt++) {
    finding = await waitForHealth(request)
    if (finding.healthy) return finding.evidence
    request.log.info(`Try ${attempt + 1} of ${request.retries + 1}: ${request.id} is not healthy. ${finding.evidence}`)
  }
  throw new DeploymentError(
    'unhealthy',
    `${request.id} was not healthy within ${request.timeoutSeconds} s, ${request.retries + 1} times: ${finding.evidence}`,
  )
}

async function waitForHealth(request: HealthRequest): Promise<Finding> {
  const { healthcheck, timeoutSeconds, signal } = request
  const deadline = performance.now() + timeoutSeconds * 1000
  const stableMs = (healthcheck?.stableForSeconds ?? SUPERVISOR_STABLE_SECONDS) * 1000
  let healthySince: number | undefined
  for (;;) {
    const finding = await look(request, Math.max(1, deadline - performance.now()))
    const now = performance.now()
    healthySince = finding.healthy ? (healthySince ?? now) : undefined
    if (healthySince !== undefined && now - healthySince >= stableMs) return finding
    const pause = (healthcheck?.intervalSeconds ?? DEFAULT_INTERVAL_SECONDS) * 1000
    if (now + pause >= deadline) return notStable(finding, stableMs)
    await setTimeout(pause, undefined, { signal })
  }
}

async function look({ service, healthcheck, signal }: HealthRequest, timeoutMs: number): Promise<Finding> {
  const state = service && (await readServiceState(service, signal))
  if (state !== undefined && !state.running) return { healthy: false, evidence: state.evidence }
  if (healthcheck === undefined) return { healthy: true, evidence: state?.evidence ?? '' }
  return runProbe(healthcheck.probe, timeoutMs, signal)
}

function notStable(finding: Finding, stableMs: number): Finding {
  if (!finding.healthy) return finding
  return { healthy: false, evidence: `healthy, but not for ${stableMs / 1000} s without a break: ${finding.evidence}` }
}
