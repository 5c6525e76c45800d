import { z } from 'zod/mini'
import type { HostConfig, HostHealthcheck } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import { serviceOf, serviceSchema } from './service.ts'

const probeSchema = z.lazy(() =>
  z.discriminatedUnion('type', [
    z.object({ type: z.literal('http'), url: z.string(), status: z.number(), body: z.exactOptional(z.string()) }),
    z.object({ type: z.literal('tcp'), address: z.string() }),
    z.object({ type: z.literal('command'), command: z.readonly(z.tuple([z.string()], z.string())) }),
  ]),
)

/** What a healthcheck step looks at; as written to the journal. */
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

/** By what a version that is brought back is checked: the step's look, for what ran before; null where nothing did. */
export const restoredCheckSchema = z.lazy(() =>
  z.extend(healthcheckSchema.def.getter(), { previous_version: z.nullable(z.string()) }),
)
export type RestoredCheck = z.infer<typeof restoredCheckSchema>

type HealthcheckStep = Extract<PlanStep, { action: 'healthcheck' }>

/** The checks of one step: of its plugin, else of everything that the plan installs; what is the same for several is looked at once. */
export function healthchecksOf(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): Healthcheck[] {
  const checks = (step.plugin === undefined ? ids : [step.plugin]).map(id => ({
    id,
    service: serviceOf(config, id, step.plugin === undefined) ?? null,
    check: config.plugins.get(id)?.healthcheck ?? null,
    timeout_seconds: step.timeoutSeconds,
    retries: step.retries,
  }))
  const lookOf = ({ service, check }: Healthcheck): string => JSON.stringify([service, check])
  return checks.filter((check, at) => checks.findIndex(other => lookOf(other) === lookOf(check)) === at)
}

/** The check with `{version}` in its `body` replaced, so that an old process that still answers does not pass for the new one. */
export function expectVersion(check: HostHealthcheck | null, version: string | null): HostHealthcheck | undefined {
  if (check === null) return undefined
  const { probe } = check
  if (probe.type !== 'http' || probe.body === undefined) return check
  return { ...check, probe: { ...probe, body: probe.body.replaceAll('{version}', version ?? '') } }
}
