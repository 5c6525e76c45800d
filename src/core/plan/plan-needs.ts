import type { SourceProblem } from '../document/source-problem.ts'
import type { HostConfig, HostHealthcheck } from './host-config.ts'
import type { PlanStep } from './plan-step.ts'

/** How the host config answers a plan. */
export interface PlanNeeds {
  /** What the plan asks for and the host config lacks, at the steps that ask. */
  readonly problems: readonly SourceProblem[]
  /** Steps that the operator chose to do without by writing `supervisor: none`: each is told in a notice. */
  readonly skipped: readonly PlanStep[]
}

/**
 * Compares a plan's steps with the host config before anything is fetched, so that no step silently does nothing: start,
 * stop and restart need a supervisor, healthcheck a supervisor or a health check, provision and notify their command. A
 * healthcheck must wait longer than its check has to hold, or it could never pass.
 */
export function checkPlanNeeds(
  plan: { readonly file: string; readonly steps: readonly PlanStep[] },
  hostConfig: HostConfig | undefined,
): PlanNeeds {
  const answers = plan.steps.map(step => ({ step, answer: answerTo(step, plan.steps, hostConfig) }))
  const problems = answers.flatMap(({ step, answer }) =>
    answer.type === 'refused' ? [problemAt(plan.file, step, answer.reason)] : [],
  )
  return { problems, skipped: answers.filter(({ answer }) => answer.type === 'skip').map(({ step }) => step) }
}

type Answer = { type: 'ready' } | { type: 'skip' } | { type: 'refused'; reason: string }

const READY: Answer = { type: 'ready' }

function answerTo(step: PlanStep, steps: readonly PlanStep[], hostConfig: HostConfig | undefined): Answer {
  switch (step.action) {
    case 'start':
    case 'stop':
    case 'restart':
      return supervised(hostConfig, 'a supervisor (systemd, docker or kubernetes; none to skip such steps)')
    case 'healthcheck':
      return healthcheckAnswer(step, idsOf(step, steps), hostConfig)
    case 'provision':
      return hostConfig?.provision.has(step.plugin) ? READY : lack(hostConfig, `an entry provision.${step.plugin}`)
    case 'notify':
      return hostConfig?.notify.has(step.event) ? READY : lack(hostConfig, `an entry notify.${step.event}`)
    case 'prepare':
    case 'download':
    case 'extract':
    case 'rollback':
    case 'install_plugin':
    case 'install_extension':
    case 'configure_plugin':
    case 'write_env':
      return READY
  }
}

function supervised(hostConfig: HostConfig | undefined, what: string): Answer {
  if (hostConfig?.supervisor === undefined) return lack(hostConfig, what)
  return hostConfig.supervisor === 'none' ? { type: 'skip' } : READY
}

function healthcheckAnswer(
  step: { readonly timeoutSeconds: number },
  ids: readonly string[],
  hostConfig: HostConfig | undefined,
): Answer {
  const unchecked = ids.filter(id => checkOf(hostConfig, id) === undefined)
  if (ids.length === 0 || unchecked.length > 0) {
    const checks = unchecked.map(id => `plugins.${id}.healthcheck`)
    const answer = supervised(hostConfig, ['a supervisor', ...checks].join(' or '))
    if (answer.type !== 'ready') return answer
  }
  const stableFor = (id: string): number => checkOf(hostConfig, id)?.stableForSeconds ?? 0
  const slow = ids.find(id => stableFor(id) >= step.timeoutSeconds)
  return slow === undefined ? READY : tooShort(step.timeoutSeconds, slow, stableFor(slow))
}

function checkOf(hostConfig: HostConfig | undefined, id: string): HostHealthcheck | undefined {
  return hostConfig?.plugins.get(id)?.healthcheck
}

/** A healthcheck without `plugin` is about everything that the plan installs. */
function idsOf(step: { readonly plugin?: string }, steps: readonly PlanStep[]): string[] {
  if (step.plugin !== undefined) return [step.plugin]
  return steps.flatMap(other => {
    if (other.action === 'install_plugin') return [other.plugin]
    return other.action === 'install_extension' ? [other.extension] : []
  })
}

function lack(hostConfig: HostConfig | undefined, what: string): Answer {
  const where = hostConfig === undefined ? 'the host-config input names no file' : `${hostConfig.file} has none`
  return { type: 'refused', reason: `needs ${what} in the host config, and ${where}` }
}

function tooShort(timeoutSeconds: number, id: string, stableSeconds: number): Answer {
  const reason = `can never pass, because its timeout of ${timeoutSeconds} s is not longer than the ${stableSeconds} s that plugins.${id}.healthcheck of the host config has in stable_for: raise the timeout, or lower stable_for`
  return { type: 'refused', reason }
}

function problemAt(file: string, step: PlanStep, reason: string): SourceProblem {
  return { message: `step "${step.id}": ${step.action} ${reason}`, file, line: step.line, column: step.column }
}
