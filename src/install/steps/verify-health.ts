import type { PlanStep } from '../../core/plan/plan-step.ts'
import { listFirst } from '../../core/quantities.ts'
import { checkHealth } from '../services/check-health.ts'
import { examinedBy, healthchecksOf } from '../services/healthchecks.ts'
import type { Deployment } from '../transaction/context.ts'
import { requireConfig } from './services-of.ts'
import type { InstallOrder } from './step-context.ts'
import type { StepResult } from './step-entry.ts'

/** A project may have many parts. */
const MAX_LISTED = 5

export type HealthcheckStep = Extract<PlanStep, { action: 'healthcheck' }>

/** The parts that run on a host, and the means to check their health. */
export interface HealthSubject extends Pick<InstallOrder, 'hostConfig'>, Pick<Deployment, 'tools'> {
  readonly parts: readonly { readonly id: string; readonly version: string }[]
  /** Whether the deployment has changed anything that the host runs. */
  readonly changed: boolean
}

/**
 * Runs one `healthcheck` step. Throws DeploymentError `unhealthy`, or `step_failed` if there is no host config. Also
 * throws the signal's reason.
 */
export async function verifyHealth(subject: HealthSubject, step: HealthcheckStep): Promise<StepResult> {
  const { parts, changed, tools } = subject
  const { log, signal } = tools
  const ids = parts.map(part => part.id)
  const found: string[] = []
  const config = requireConfig(subject)
  for (const healthcheck of healthchecksOf(step, config, ids)) {
    const version = parts.find(part => part.id === healthcheck.id)?.version ?? null
    const { evidence, brief } = await checkHealth({ healthcheck, version, changed, log, signal })
    log.info(`${healthcheck.id} is healthy: ${evidence}`)
    found.push(parts.length === 1 ? brief : `${healthcheck.id}: ${brief}`)
  }
  const did = listFirst(found, MAX_LISTED) || 'nothing to check'
  return { status: 'done', did, checked: examinedBy(step, config, ids) }
}
