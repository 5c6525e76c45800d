import { ConfigError } from '../errors.ts'
import { listNames } from '../text.ts'
import { collectProblems, type SourceProblem } from '../yaml/problems.ts'
import { installedId, isInstallStep, isMarkerStep, stepProblem } from './binding.ts'
import type { HostConfig, HostHealthcheck } from './host-config.ts'
import { type Plan, PlanError, type PlanProblem, type ReadablePlan } from './plan.ts'
import { MAX_HEALTHCHECK_SECONDS, type PlanStep } from './step.ts'

/** A plan that fits its artifact and this host. */
export interface ReadyPlan<Bound> {
  readonly bound: Bound
  /**
   * The ids of the steps that are skipped because the host config has `supervisor: none`, or no command for their
   * event.
   */
  readonly skipped: ReadonlySet<string>
}

/** Binds a plan and compares it with the host config. Throws PlanError `invalid_plan` with all problems found. */
export function readyPlan<Bound>(
  plan: Plan,
  hostConfig: HostConfig | undefined,
  bind: (plan: Plan) => Bound,
): ReadyPlan<Bound> {
  const { value: bound, problems } = collectProblems(() => bind(plan))
  const needs = checkPlanNeeds(plan, hostConfig)
  if (bound === undefined || needs.problems.length > 0) throw new PlanError([...problems, ...needs.problems])
  return { bound, skipped: new Set(needs.skipped.map(step => step.id)) }
}

/**
 * Finds the needs of a refused plan that the host config does not meet, as far as the plan can be read. Ignores a
 * health check without `plugin` if an installing step cannot be read, because such a check concerns everything that the
 * plan installs.
 */
export function needsProblems(
  { steps, hidesInstall }: ReadablePlan,
  hostConfig: HostConfig | undefined,
): PlanProblem[] {
  const isKnown = (step: PlanStep): boolean => !(hidesInstall && step.action === 'healthcheck' && !('plugin' in step))
  return [...checkPlanNeeds({ steps: steps.filter(isKnown) }, hostConfig).problems]
}

/**
 * Checks the templates that a plan takes from the artifact. Each must be a regular file of the artifact. None may be at
 * or below a kept path, because the host's own file would be read instead. `hasFile` receives the `from` of a step.
 * Throws PlanError `invalid_plan`.
 */
export function verifyTemplates(
  steps: readonly PlanStep[],
  keepPaths: readonly string[],
  hasFile: (from: string) => boolean,
): void {
  const problems = steps.flatMap(step => {
    if (step.action !== 'write_env') return []
    const path = step.from.split('/').slice(2).join('/')
    const kept = keepPaths.find(keep => path === keep || path.startsWith(`${keep}/`))
    if (kept === undefined && hasFile(step.from)) return []
    const reason =
      kept === undefined
        ? 'which is not a regular file of the version to install'
        : `which is the host's own file (${kept}), not the artifact's`
    return [stepProblem(step, `from names ${step.from}, ${reason}`)]
  })
  if (problems.length > 0) throw new PlanError(problems)
}

/** The result of comparing a plan with the host config. */
interface PlanNeeds {
  /** A problem for each need that the host config does not meet, at the step that has the need. */
  readonly problems: readonly SourceProblem[]
  /**
   * The steps that this host skips, because of `supervisor: none` or because the host config has no command for their
   * event. A notice names each of these steps.
   */
  readonly skipped: readonly PlanStep[]
}

/**
 * Compares a plan's steps with the host config before any step runs, so that none silently does nothing. Start, stop
 * and restart need a supervisor, healthcheck needs a supervisor or a health check, and provision needs its command. A
 * notify without its command is skipped, because plans made elsewhere name their own events. The timeout of a
 * healthcheck must be longer than the `stable_for` of each probe, or the step could never pass.
 */
export function checkPlanNeeds(plan: Pick<Plan, 'steps'>, hostConfig: HostConfig | undefined): PlanNeeds {
  const check = new NeedsCheck(plan.steps, hostConfig)
  const answers = plan.steps.map(step => ({ step, answer: check.answerTo(step) }))
  const problems = answers.flatMap(({ step, answer }) =>
    answer.type === 'refused' ? [stepProblem(step, `${step.action} ${answer.reason}`)] : [],
  )
  return { problems, skipped: answers.filter(({ answer }) => answer.type === 'skip').map(({ step }) => step) }
}

type StepReadiness = { type: 'ready' } | { type: 'skip' } | { type: 'refused'; reason: string }

const READY: StepReadiness = { type: 'ready' }

class NeedsCheck {
  readonly #hostConfig: HostConfig | undefined
  readonly #installedIds: readonly string[]

  constructor(steps: readonly PlanStep[], hostConfig: HostConfig | undefined) {
    this.#hostConfig = hostConfig
    this.#installedIds = steps.filter(isInstallStep).map(installedId)
  }

  answerTo(step: PlanStep): StepReadiness {
    if (isMarkerStep(step) || isInstallStep(step)) return READY
    switch (step.action) {
      case 'start':
      case 'stop':
      case 'restart':
        return this.#supervised('a supervisor (systemd, docker or kubernetes; "supervisor: none" skips such steps)')
      case 'healthcheck':
        return this.#healthcheckAnswer(step)
      case 'provision':
        return this.#hostConfig?.provision.has(step.plugin) ? READY : this.#lack(`an entry provision.${step.plugin}`)
      case 'notify':
        return this.#hostConfig?.notify.has(step.event) ? READY : { type: 'skip' }
      case 'write_env':
        return READY
    }
  }

  #supervised(need: string): StepReadiness {
    if (this.#hostConfig?.supervisor === undefined) return this.#lack(need)
    return this.#hostConfig.supervisor === 'none' ? { type: 'skip' } : READY
  }

  /** A healthcheck without `plugin` checks everything that the plan installs. */
  #healthcheckAnswer(step: { readonly plugin?: string; readonly timeoutSeconds: number }): StepReadiness {
    const ids = step.plugin === undefined ? this.#installedIds : [step.plugin]
    const unchecked = ids.filter(id => this.#checkOf(id) === undefined)
    if (ids.length === 0 || unchecked.length > 0) {
      const checks = unchecked.map(id => `plugins.${id}.healthcheck`).join(' and ')
      const needs = ['a supervisor ("supervisor: none" skips such steps)', ...(checks === '' ? [] : [checks])]
      const answer = this.#supervised(needs.join(' or '))
      if (answer.type !== 'ready') return answer
    }
    return this.#timeAnswer(ids, step.timeoutSeconds)
  }

  #timeAnswer(ids: readonly string[], timeoutSeconds: number): StepReadiness {
    const stableFor = (id: string): number => this.#checkOf(id)?.stableForSeconds ?? 0
    const slow = ids.find(id => stableFor(id) >= timeoutSeconds)
    if (slow === undefined) return READY
    const canRaise = stableFor(slow) < MAX_HEALTHCHECK_SECONDS
    const remedy = canRaise ? 'Raise the timeout, or lower stable_for' : 'Lower stable_for'
    const reason = `can never pass: its timeout of ${timeoutSeconds} s is not longer than the ${stableFor(slow)} s of stable_for in ${this.#hostConfig?.file} (plugins.${slow}.healthcheck). ${remedy}`
    return { type: 'refused', reason }
  }

  #checkOf(id: string): HostHealthcheck | undefined {
    return this.#hostConfig?.plugins.get(id)?.healthcheck
  }

  #lack(need: string): StepReadiness {
    const file = this.#hostConfig?.file
    const where = file === undefined ? 'the host-config input names no file' : `${file} has no such entry`
    return { type: 'refused', reason: `needs ${need} in the host config, but ${where}` }
  }
}

/** The steps and removals by which a project acts on services of this host. */
interface ServiceUse {
  /** The plan's steps without those that are skipped. */
  readonly steps: readonly PlanStep[]
  /** The ids of parts that this version removes, whose services are stopped. */
  readonly removedIds: readonly string[]
}

/**
 * Refuses a systemd or Docker template that is only `{id}` (in systemd, perhaps with a suffix such as `.service`, or as
 * the template of an instance), if the project uses it for an id without its own row under `plugins`. The project's publisher would choose the service,
 * and could choose the id `sshd`. Throws ConfigError `invalid_host_config`.
 */
export function verifyServiceNames(config: HostConfig | undefined, use: ServiceUse): void {
  // A namespace already limits what the publisher can choose.
  if (config === undefined || config.supervisor === 'kubernetes') return
  const template = bareTemplateOf(config)
  const open = new Set(idsUsing(config, use).filter(id => !isNamedBy(config, id)))
  if (template === undefined || open.size === 0) return
  const { key, value, granted } = template
  const ids = `${open.size === 1 ? 'id' : 'ids'} ${listNames([...open])}`
  throw new ConfigError(
    'invalid_host_config',
    `${config.file} names services by ${key} "${value}", so the publisher of this project, who chooses the ${ids}, could start or stop any service of this host: set ${key} to a name with your own prefix, such as "app-${value}", or add plugins.<id> with its ${granted} ${open.size === 1 ? 'for this id' : 'for each of these ids'}. Nothing was installed.`,
  )
}

/**
 * True if the operator, and not the id alone, decides what the service of this id is called: the host config has a row
 * for the id, or a template with a name of its own, such as `app-{id}.service`.
 */
export function isNamedBy(config: HostConfig, id: string): boolean {
  return config.plugins.has(id) || bareTemplateOf(config) === undefined
}

interface BareTemplate {
  readonly key: string
  readonly value: string
  /** The key below `plugins.<id>` that names the service of one id. */
  readonly granted: string
}

/** In systemd, `{id}@name` is an instance of the template unit that the id names. */
const BARE_UNIT = /^\{id\}(?:@.*|\.[a-z]+)?$/

function bareTemplateOf({ supervisor, systemd, docker, kubernetes }: HostConfig): BareTemplate | undefined {
  if (supervisor === 'systemd' && BARE_UNIT.test(systemd.unit))
    return { key: 'systemd.unit', value: systemd.unit, granted: 'unit' }
  if (supervisor === 'docker' && docker.container === '{id}')
    return { key: 'docker.container', value: docker.container, granted: 'container' }
  if (supervisor === 'kubernetes' && kubernetes.deployment === '{id}')
    return { key: 'kubernetes.deployment', value: kubernetes.deployment, granted: 'deployment' }
  return undefined
}

/** Returns the ids of the services that steps and removals use, excluding the project's unit. */
function idsUsing(config: HostConfig, { steps, removedIds }: ServiceUse): string[] {
  const installedIds = steps.filter(isInstallStep).map(installedId)
  const hasProjectUnit = config.supervisor === 'systemd' && config.systemd.projectUnit !== undefined
  const used = steps.flatMap(step => {
    switch (step.action) {
      case 'start':
      case 'stop':
      case 'restart':
      case 'healthcheck':
        return step.plugin === undefined ? (hasProjectUnit ? [] : installedIds) : [step.plugin]
      default:
        return []
    }
  })
  return [...used, ...removedIds]
}
