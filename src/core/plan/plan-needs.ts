import type { SourceProblem } from '../document/source-problem.ts'
import type { HostConfig, HostHealthcheck } from './host-config.ts'
import type { Plan } from './plan.ts'
import { installedId, isInstallStep, isMarkerStep, stepProblem } from './plan-binding.ts'
import { MAX_HEALTHCHECK_SECONDS, type PlanStep } from './plan-step.ts'

/** The result of comparing a plan with the host config. */
export interface PlanNeeds {
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

type Answer = { type: 'ready' } | { type: 'skip' } | { type: 'refused'; reason: string }

const READY: Answer = { type: 'ready' }

class NeedsCheck {
  readonly #hostConfig: HostConfig | undefined
  readonly #installedIds: readonly string[]

  constructor(steps: readonly PlanStep[], hostConfig: HostConfig | undefined) {
    this.#hostConfig = hostConfig
    this.#installedIds = steps.filter(isInstallStep).map(installedId)
  }

  answerTo(step: PlanStep): Answer {
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

  #supervised(need: string): Answer {
    if (this.#hostConfig?.supervisor === undefined) return this.#lack(need)
    return this.#hostConfig.supervisor === 'none' ? { type: 'skip' } : READY
  }

  /** A healthcheck without `plugin` checks everything that the plan installs. */
  #healthcheckAnswer(step: { readonly plugin?: string; readonly timeoutSeconds: number }): Answer {
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

  #timeAnswer(ids: readonly string[], timeoutSeconds: number): Answer {
    const stableFor = (id: string): number => this.#checkOf(id)?.stableForSeconds ?? 0
    const slow = ids.find(id => stableFor(id) >= timeoutSeconds)
    if (slow === undefined) return READY
    const canRaise = stableFor(slow) < MAX_HEALTHCHECK_SECONDS
    const remedy = canRaise ? 'Raise the timeout, or lower stable_for' : 'Lower stable_for'
    const reason = `can never pass: its timeout of ${timeoutSeconds} s is not longer than the ${stableFor(slow)} s of stable_for in the host config (plugins.${slow}.healthcheck). ${remedy}`
    return { type: 'refused', reason }
  }

  #checkOf(id: string): HostHealthcheck | undefined {
    return this.#hostConfig?.plugins.get(id)?.healthcheck
  }

  #lack(need: string): Answer {
    const file = this.#hostConfig?.file
    const where = file === undefined ? 'the host-config input names no file' : `${file} has no such entry`
    return { type: 'refused', reason: `needs ${need} in the host config, but ${where}` }
  }
}
