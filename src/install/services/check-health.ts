import { DeploymentError, toDeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { Log } from '../../core/log.ts'
import { durationInWords } from '../../core/quantities.ts'
import { type Clock, systemClock } from '../files/clock.ts'
import { logCommand, type ParsedState } from './commands.ts'
import { expectVersion, type Healthcheck, type RestoredCheck } from './healthchecks.ts'
import { type Finding, type ProbeContext, runProbe } from './probe.ts'
import { type Service, shortName } from './service.ts'
import { beginStreak, paceOf, type Sight } from './stability.ts'
import { type Limits, readRestarts, readServiceRun, readServiceState } from './supervise.ts'

/** A single probe that takes longer counts as failed, which may leave time for another probe. */
const PROBE_TIMEOUT_MS = 10_000
/** With less time left, no further probe starts: a probe that is cut short would hide why the previous probe failed. */
const SHORTEST_PROBE_MS = 200
/** A timer may fire this many milliseconds too early. */
const TIMER_MS = 1
const MAX_RESTORED_SECONDS = 60
const MAX_BRIEF_CHARS = 120

export interface HealthRequest {
  healthcheck: Healthcheck
  /** Replaces `{version}` in the check's `body`. */
  version: string | null
  /** Whether the deployment has changed what the host runs. */
  changed: boolean
  /** Whether `version` is the old version, after a rollback. */
  isRestored?: boolean
  log: Log
  signal: AbortSignal
}

/** Evidence that a service is healthy. */
export interface Health {
  /** One line, from the last probe. */
  readonly evidence: string
  /** In a few words: the last finding, and how long the service had to be healthy. */
  readonly brief: string
}

/**
 * Waits until the supervisor reports the service as running and the configured check passes, both without a break for
 * the check's `stable_for` period. Without a service or without a check, waits only for the other. With a service, this
 * period is at least 3 s, or half of the timeout if that is shorter. A new start of the service is a break.
 *
 * Throws DeploymentError `unhealthy` with the last evidence if no attempt succeeds, or the signal's reason.
 */
export async function checkHealth(request: HealthRequest, clock: Clock = systemClock): Promise<Health> {
  const { timeout_seconds: seconds, retries } = request.healthcheck
  const subject = describeSubject(request)
  let finding: Finding = { healthy: false, evidence: 'no probe was made' }
  for (let attempt = 1; attempt <= retries + 1; attempt++) {
    finding = await waitForHealth(request, clock)
    if (finding.healthy) return { evidence: finding.evidence, brief: inBrief(finding, request.healthcheck) }
    // The error below reports the last attempt.
    if (attempt <= retries)
      request.log.info(`In attempt ${attempt} of ${retries + 1}, ${subject} was not healthy: ${finding.evidence}`)
  }
  throw new DeploymentError(
    'unhealthy',
    `${subject} was not healthy ${retries === 0 ? `within ${seconds} s` : `in ${retries + 1} attempts of ${seconds} s each`}: ${finding.evidence}`,
    adviceFor(request),
  )
}

/**
 * Returns one sentence for each check that fails after an older version was restored. Runs all checks at once, so that
 * they take no longer than the slowest of them. Throws the signal's reason once the signal is aborted.
 */
export async function findUnhealthy(
  checks: readonly RestoredCheck[],
  { log, signal }: Pick<HealthRequest, 'log' | 'signal'>,
): Promise<string[]> {
  const findings = checks.map(async ({ previous_version: version, ...healthcheck }) => {
    try {
      const once = onceBriefly(healthcheck)
      const { evidence, brief } = await checkHealth({
        healthcheck: once,
        version,
        changed: false,
        isRestored: true,
        log,
        signal,
      })
      log.info(`${once.id} is healthy again: ${evidence}`)
      log.did(`${once.id} is healthy again, ${brief}`)
      return []
    } catch (error) {
      signal.throwIfAborted()
      return [toDeployError(error).message]
    }
  })
  return (await Promise.all(findings)).flat()
}

/** Says `restored`, because the old version and the new one have the same id. */
function describeSubject({ healthcheck: { id }, version, isRestored }: HealthRequest): string {
  return `${isRestored ? 'The restored ' : ''}${id}${version === null ? '' : ` ${version}`}`
}

/**
 * Allows one attempt of at most a minute, or of `stable_for` plus half a minute if that is longer, because every
 * rollback and recovery must end.
 */
function onceBriefly(healthcheck: Healthcheck): Healthcheck {
  const stable = healthcheck.check?.stableForSeconds ?? 0
  const seconds = Math.min(
    healthcheck.timeout_seconds,
    Math.max(MAX_RESTORED_SECONDS, stable + MAX_RESTORED_SECONDS / 2),
  )
  return { ...healthcheck, retries: 0, timeout_seconds: seconds }
}

/** Advises the operator to read the service's log; gives no advice for a check without a service. */
function adviceFor({ healthcheck: { service } }: HealthRequest): { next?: string } {
  return service === null ? {} : { next: `Read the service's log on the host: \`${logCommand(service)}\`` }
}

function inBrief({ evidence, brief = evidence }: Finding, healthcheck: Healthcheck): string {
  const { stableMs } = paceOf(healthcheck)
  return `${cleanForeignText(brief, MAX_BRIEF_CHARS)}${stableMs === 0 ? '' : ` for ${durationInWords(stableMs)}`}`
}

async function waitForHealth({ healthcheck, version, changed, signal }: HealthRequest, clock: Clock): Promise<Finding> {
  const expected = expectVersion(healthcheck, version)
  const { timeoutMs, stableMs, intervalMs } = paceOf(healthcheck)
  const deadline = clock.now() + timeoutMs
  const streak = beginStreak()
  let before: Finding | undefined
  for (;;) {
    const probeMs = Math.max(1, Math.min(PROBE_TIMEOUT_MS, deadline - clock.now()))
    const finding = await probeService(expected, { timeoutMs: probeMs, changed, signal })
    const now = clock.now()
    streak.add(finding, now)
    const healthyMs = streak.healthyMs(now)
    if (healthyMs !== undefined && healthyMs >= stableMs) return withStarts(finding, streak.starts)
    const pauseMs = healthyMs === undefined ? intervalMs : Math.min(intervalMs, stableMs - healthyMs)
    if (now + pauseMs + SHORTEST_PROBE_MS >= deadline) {
      const last = deadline - now <= TIMER_MS ? uncut(finding, before) : finding
      return withStarts(unstable(last, stableMs), streak.starts)
    }
    before = finding
    await clock.sleep(pauseMs, signal)
  }
}

/** With neither a service nor a check, the finding is unhealthy. */
async function probeService({ service, check }: Healthcheck, limits: ProbeContext): Promise<Finding & Sight> {
  const supervised = service === null ? UNEXAMINED : await probeSupervisor(service, limits)
  if (check === null || (service !== null && !supervised.healthy)) return supervised
  return { ...(await runProbe(check.probe, limits)), run: supervised.run }
}

const UNEXAMINED: Finding & Sight = {
  healthy: false,
  evidence: 'the host config has no service and no check for it',
  run: [],
}

async function probeSupervisor(service: Service, limits: Limits): Promise<Finding & Sight> {
  const state = await readServiceState(service, limits)
  const { running: healthy, evidence } = state
  if (!healthy) return { healthy, evidence, run: [] }
  const run = await identifyRun(service, state, limits)
  return { healthy, evidence, brief: `${shortName(service)} is running`, run }
}

async function identifyRun(service: Service, state: ParsedState, limits: Limits): Promise<Sight['run']> {
  const run = await readServiceRun(service, limits)
  const restarts = await readRestarts(service, state, limits)
  return [run, restarts?.toString() ?? null]
}

/** A probe that the deadline cut short, as on a busy host, would hide why the previous probe failed. */
function uncut(finding: Finding, before: Finding | undefined): Finding {
  return finding.healthy || before === undefined || before.healthy ? finding : before
}

function unstable(finding: Finding, stableMs: number): Finding {
  if (!finding.healthy) return finding
  return { healthy: false, evidence: `healthy, but not for ${stableMs / 1000} s without a break: ${finding.evidence}` }
}

function withStarts(finding: Finding, starts: number): Finding {
  if (starts === 0) return finding
  return { ...finding, evidence: `it started again during the check (times: ${starts}); ${finding.evidence}` }
}
