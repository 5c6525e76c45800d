import type { HostConfig, HostHealthcheck } from '../../core/plan/host-config.ts'
import { DEFAULT_HEALTHCHECK_SECONDS, type PlanStep } from '../../core/plan/plan-step.ts'
import { projectServiceOf, type Service, serviceOf } from './service.ts'

/** The check of a healthcheck step for one id. */
export interface Healthcheck {
  readonly id: string
  readonly service: Service | null
  readonly check: HostHealthcheck | null
  readonly timeout_seconds: number
  readonly retries: number
}

/**
 * The check of a restored version, and that version. The version is null if nothing was installed before, or if it is
 * not known.
 */
export interface RestoredCheck extends Healthcheck {
  readonly previous_version: string | null
}

type HealthcheckStep = Extract<PlanStep, { action: 'healthcheck' }>

/**
 * Returns a step's checks: the check of the step's plugin, or, if the step names none, the checks of all these ids.
 * Equal checks are returned once, and an id with nothing to examine has no check.
 */
export function healthchecksOf(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): Healthcheck[] {
  return uniqueChecks(checksOf(step, config, ids))
}

/** Returns equal checks only once. */
export function uniqueChecks<Check extends Healthcheck>(checks: readonly Check[]): Check[] {
  const keyOf = ({ service, check }: Healthcheck): string => JSON.stringify([service, check])
  return checks.filter((check, at) => checks.findIndex(other => keyOf(other) === keyOf(check)) === at)
}

/** Returns the ids whose service or check a step examines. */
export function examinedBy(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): string[] {
  return checksOf(step, config, ids).map(({ id }) => id)
}

/** Returns the check of a restored part for which no step of a plan says how long the check may take. */
export function checkOfRestored(
  config: HostConfig,
  { id, version }: { readonly id: string; readonly version: string | null },
  service: Service | null,
): RestoredCheck {
  const check = config.plugins.get(id)?.healthcheck ?? null
  const timeout = DEFAULT_HEALTHCHECK_SECONDS + (check?.stableForSeconds ?? 0)
  return { id, service, check, timeout_seconds: timeout, retries: 0, previous_version: version }
}

/** True if a check has a service or a probe to examine. */
export function isExamining({ service, check }: Pick<Healthcheck, 'service' | 'check'>): boolean {
  return service !== null || check !== null
}

function checksOf(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): Healthcheck[] {
  const findService = step.plugin === undefined ? projectServiceOf : serviceOf
  const checks = (step.plugin === undefined ? ids : [step.plugin]).map(id => ({
    id,
    service: findService(config, id) ?? null,
    check: config.plugins.get(id)?.healthcheck ?? null,
    timeout_seconds: step.timeoutSeconds,
    retries: step.retries,
  }))
  return checks.filter(isExamining)
}

/**
 * Replaces `{version}` in the check's `body`, so that an old process that still answers does not pass for a new one.
 */
export function expectVersion(healthcheck: Healthcheck, version: string | null): Healthcheck {
  const { check } = healthcheck
  if (check?.probe.type !== 'http' || check.probe.body === undefined) return healthcheck
  const probe = { ...check.probe, body: check.probe.body.replaceAll('{version}', version ?? '') }
  return { ...healthcheck, check: { ...check, probe } }
}
