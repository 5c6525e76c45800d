import { z } from 'zod/mini'
import type { HostConfig } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { projectServiceOf, serviceOf, serviceSchema } from './service.ts'

const probeSchema = z.lazy(() =>
  z.discriminatedUnion('type', [
    z.object({ type: z.literal('http'), url: z.string(), status: z.number(), body: z.exactOptional(z.string()) }),
    z.object({ type: z.literal('tcp'), address: z.string() }),
    z.object({ type: z.literal('command'), command: z.readonly(z.tuple([z.string()], z.string())) }),
  ]),
)

/** The check of a healthcheck step for one id; as written to the journal. */
export const healthcheckSchema = z.lazy(() =>
  z.object({
    id: z.string(),
    service: z.nullable(serviceSchema),
    check: z.nullable(z.object({ probe: probeSchema, intervalSeconds: z.number(), stableForSeconds: z.number() })),
    timeout_seconds: z.number(),
    retries: z.number(),
  }),
)
export type Healthcheck = z.infer<typeof healthcheckSchema>

/**
 * The check of a restored version, and that version. The version is null if nothing was installed before, or if it is
 * not known.
 */
export const restoredCheckSchema = z.lazy(() =>
  z.extend(healthcheckSchema.def.getter(), { previous_version: z.nullable(z.string()) }),
)
export type RestoredCheck = z.infer<typeof restoredCheckSchema>

type HealthcheckStep = Extract<PlanStep, { action: 'healthcheck' }>

/**
 * Returns a step's checks: the check of the step's plugin, or, if the step names none, the checks of all these ids.
 * Equal checks are returned once, and an id with nothing to examine has no check.
 */
export function healthchecksOf(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): Healthcheck[] {
  const checks = checksOf(step, config, ids)
  const keyOf = ({ service, check }: Healthcheck): string => JSON.stringify([service, check])
  return checks.filter((check, at) => checks.findIndex(other => keyOf(other) === keyOf(check)) === at)
}

/** Returns the ids whose service or check a step examines. */
export function examinedBy(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): string[] {
  return checksOf(step, config, ids).map(({ id }) => id)
}

/**
 * True if a check has a service or a probe to examine. A check in the journal of an earlier version of the action may
 * have neither.
 */
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
