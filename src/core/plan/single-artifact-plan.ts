import { problemAt } from '../document/source-problem.ts'
import type { Kind } from '../identifiers.ts'
import { type Plan, PlanError, type PlanProblem } from './plan.ts'
import {
  foreignPlanProblems,
  type InstallStep,
  installedId,
  isInstallStep,
  prematureProblems,
  settingsNameProblems,
  stepProblem,
  subjectIdOf,
} from './plan-binding.ts'
import { orderSteps } from './plan-order.ts'
import type { PlanStep } from './plan-step.ts'

/** A plan that fits one marketplace artifact. */
export interface BoundPlan {
  /** The directory below plugins/ or extensions/ that it installs. */
  readonly id: string
  readonly installStep: InstallStep
  /** In the order in which they run. */
  readonly steps: readonly PlanStep[]
  /** Whether the replaced version is kept after success: some step asks for it. */
  readonly snapshot: boolean
}

/**
 * Binds a plan to the one artifact that it installs: its `project_id` equals the slug (contract 4.3, rule 6), it
 * installs exactly one part and of this kind, every other step works on that part, templates come from it, and no step
 * that needs its files runs before they exist. Throws PlanError `invalid_plan` with every problem.
 */
export function bindPlanToArtifact(plan: Plan, artifact: { kind: Kind; slug: string }): BoundPlan {
  const installStep = plan.steps.find(isInstallStep)
  const problems = [...foreignPlanProblems(plan, 'the slug', artifact.slug), ...installProblems(plan, artifact.kind)]
  if (installStep === undefined) throw new PlanError(problems)
  const steps = orderSteps(plan)
  problems.push(...strangerProblems(plan, installStep), ...templateProblems(plan, installStep))
  problems.push(...prematureProblems(steps, (_, install) => install === installStep))
  if (problems.length > 0) throw new PlanError(problems)
  return { id: installedId(installStep), installStep, steps, snapshot: steps.some(step => step.snapshot) }
}

const INSTALL_ACTIONS = { plugin: 'install_plugin', service: 'install_extension' } as const

function installProblems(plan: Plan, kind: Kind): PlanProblem[] {
  const action = INSTALL_ACTIONS[kind]
  const installSteps = plan.steps.filter(isInstallStep)
  const [first] = installSteps
  if (first === undefined) {
    return [problemAt(plan.positions.steps, `no step installs the ${kind}: add one with action ${action}`)]
  }
  const wrongKind = installSteps
    .filter(step => step.action !== action)
    .map(step => stepProblem(step, `${step.action} does not install a ${kind}: use ${action}, or the other kind`))
  const sourced = installSteps
    .filter(step => step.source !== undefined)
    .map(step =>
      stepProblem(step, `source belongs into the plan of a project: leave it out, a ${kind} is its own artifact`),
    )
  const further = installSteps
    .slice(1)
    .map(step => stepProblem(step, `an artifact is installed once, and step "${first.id}" already installs it`))
  return [...wrongKind, ...settingsNameProblems(installSteps), ...sourced, ...further]
}

function strangerProblems(plan: Plan, installStep: InstallStep): PlanProblem[] {
  const id = installedId(installStep)
  return plan.steps.flatMap(step => {
    const subject = subjectIdOf(step)
    if (subject === undefined || subject === id) return []
    return [stepProblem(step, `plugin must be "${id}", which this plan installs, found "${subject}"`)]
  })
}

function templateProblems(plan: Plan, installStep: InstallStep): PlanProblem[] {
  const folder = `${installStep.action === 'install_plugin' ? 'plugins' : 'extensions'}/${installedId(installStep)}/`
  return plan.steps.flatMap(step => {
    if (step.action !== 'write_env' || step.from.startsWith(folder)) return []
    return [stepProblem(step, `from must begin with ${folder}, which this plan installs, found "${step.from}"`)]
  })
}
