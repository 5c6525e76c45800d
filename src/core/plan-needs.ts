import type { HostConfig, HostPlugin } from './host-config.ts'
import type { PlanStep } from './plan-step.ts'
import type { SourceProblem } from './source-problem.ts'

/** How the host config answers a plan. */
export interface PlanNeeds {
  /** What the plan asks for and the host config lacks, at the steps that ask. */
  readonly problems: readonly SourceProblem[]
  /** Steps that the operator chose to do without by writing `supervisor: none`: each is told in a notice. */
  readonly skipped: readonly PlanStep[]
}

/**
 * Compares a plan's steps with the host config before anything is fetched, so that no step silently does nothing: start,
 * stop and restart need a supervisor, healthcheck a supervisor or a health check, provision and notify their command.
 */
export function checkPlanNeeds(
  plan: { readonly file: string; readonly steps: readonly PlanStep[] },
  hostConfig: HostConfig | undefined,
): PlanNeeds {
  const answers = plan.steps.map(step => ({ step, answer: answerTo(step, plan.steps, hostConfig) }))
  const problems = answers.flatMap(({ step, answer }) =>
    answer.type === 'lacks' ? [lackProblem(plan.file, step, answer.what, hostConfig)] : [],
  )
  return { problems, skipped: answers.filter(({ answer }) => answer.type === 'skip').map(({ step }) => step) }
}

type Answer = { type: 'ready' } | { type: 'skip' } | { type: 'lacks'; what: string }

const READY: Answer = { type: 'ready' }

function answerTo(step: PlanStep, steps: readonly PlanStep[], hostConfig: HostConfig | undefined): Answer {
  switch (step.action) {
    case 'start':
    case 'stop':
    case 'restart':
      return supervised(hostConfig, 'a supervisor (systemd, docker or kubernetes; none to skip such steps)')
    case 'healthcheck':
      return healthcheckAnswer(idsOf(step, steps), hostConfig)
    case 'provision':
      return hostConfig?.provision.has(step.plugin)
        ? READY
        : { type: 'lacks', what: `an entry provision.${step.plugin}` }
    case 'notify':
      return hostConfig?.notify.has(step.event) ? READY : { type: 'lacks', what: `an entry notify.${step.event}` }
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
  if (hostConfig?.supervisor === undefined) return { type: 'lacks', what }
  return hostConfig.supervisor === 'none' ? { type: 'skip' } : READY
}

function healthcheckAnswer(ids: readonly string[], hostConfig: HostConfig | undefined): Answer {
  const checked = (id: string) => pluginOf(hostConfig, id)?.healthcheck !== undefined
  if (ids.length > 0 && ids.every(checked)) return READY
  const unchecked = ids.filter(id => !checked(id)).map(id => `plugins.${id}.healthcheck`)
  return supervised(hostConfig, ['a supervisor', ...unchecked].join(' or '))
}

function pluginOf(hostConfig: HostConfig | undefined, id: string): HostPlugin | undefined {
  return hostConfig?.plugins.get(id)
}

/** A healthcheck without `plugin` is about everything that the plan installs. */
function idsOf(step: { readonly plugin?: string }, steps: readonly PlanStep[]): string[] {
  if (step.plugin !== undefined) return [step.plugin]
  return steps.flatMap(other => {
    if (other.action === 'install_plugin') return [other.plugin]
    return other.action === 'install_extension' ? [other.extension] : []
  })
}

function lackProblem(file: string, step: PlanStep, what: string, hostConfig: HostConfig | undefined): SourceProblem {
  const where = hostConfig === undefined ? 'the host-config input names no file' : `${hostConfig.file} has none`
  const message = `step "${step.id}": ${step.action} needs ${what} in the host config, and ${where}`
  return { message, file, line: step.line, column: step.column }
}
