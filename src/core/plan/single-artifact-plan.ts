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
import { type ReadablePlan, wholePlan } from './readable-plan.ts'

/** A plan that fits one marketplace artifact. */
export interface BoundPlan {
  /** The id of the part that the plan installs: the name of its directory below plugins/ or extensions/. */
  readonly id: string
  readonly installStep: InstallStep
  /** In the order in which they run. */
  readonly steps: readonly PlanStep[]
  /** True if some step asks to keep the replaced version after success. */
  readonly snapshot: boolean
}

/**
 * Binds a plan to the artifact that it installs. The plan's `project_id` must equal the slug (contract 4.3, rule 6).
 * The plan must install exactly one part, of this kind, with an id that does not end in `.env`. Every other step must
 * work on that part, templates must come from it, and no step that needs the part's files may run before they are
 * installed. Throws PlanError `invalid_plan` with every problem.
 */
export function bindPlanToArtifact(plan: Plan, artifact: { kind: Kind; slug: string }): BoundPlan {
  const problems = bindingProblems(wholePlan(plan), artifact)
  const installStep = plan.steps.find(isInstallStep)
  if (installStep === undefined || problems.length > 0) throw new PlanError(problems)
  const steps = orderSteps(plan)
  return { id: installedId(installStep), installStep, steps, snapshot: steps.some(step => step.snapshot) }
}

/** Finds every way in which a plan does not fit its artifact, as far as the plan can be read. */
export function bindingProblems(plan: ReadablePlan, { kind, slug }: { kind: Kind; slug: string }): PlanProblem[] {
  const { projectId, positions } = plan
  const foreign = projectId === undefined ? [] : foreignPlanProblems({ projectId, positions }, 'the slug', slug)
  const installStep = plan.steps.find(isInstallStep)
  const problems = [...foreign, ...installProblems(plan, kind)]
  if (installStep === undefined || plan.hidesInstall) return problems
  problems.push(...strangerProblems(plan, installStep), ...templateProblems(plan, installStep))
  if (!plan.isWhole) return problems
  return [...problems, ...prematureProblems(orderSteps(plan), (_, install) => install === installStep)]
}

const INSTALL_ACTIONS = { plugin: 'install_plugin', service: 'install_extension' } as const

function installProblems(plan: ReadablePlan, kind: Kind): PlanProblem[] {
  const action = INSTALL_ACTIONS[kind]
  const installSteps = plan.steps.filter(isInstallStep)
  const [first] = installSteps
  if (first === undefined) {
    if (plan.hidesInstall) return []
    return [problemAt(plan.positions.steps, `no step installs the ${kind}: add one with action ${action}`)]
  }
  const wrongKind = installSteps
    .filter(step => step.action !== action)
    .map(step => stepProblem(step, `${step.action} does not install a ${kind}: use ${action}, or set the other kind`))
  const sourced = installSteps
    .filter(step => step.source !== undefined)
    .map(step =>
      stepProblem(step, `source belongs in the plan of a project: remove it, because a ${kind} is its own artifact`),
    )
  const further = installSteps
    .slice(1)
    .map(step =>
      stepProblem(step, `an artifact can be installed only once, but step "${first.id}" already installs it`),
    )
  return [...wrongKind, ...settingsNameProblems(installSteps), ...sourced, ...further]
}

function strangerProblems(plan: ReadablePlan, installStep: InstallStep): PlanProblem[] {
  const id = installedId(installStep)
  return plan.steps.flatMap(step => {
    const subject = subjectIdOf(step)
    if (subject === undefined || subject === id) return []
    return [stepProblem(step, `plugin must be "${id}", which this plan installs, but found "${subject}"`)]
  })
}

function templateProblems(plan: ReadablePlan, installStep: InstallStep): PlanProblem[] {
  const folder = `${installStep.action === 'install_plugin' ? 'plugins' : 'extensions'}/${installedId(installStep)}/`
  return plan.steps.flatMap(step => {
    if (step.action !== 'write_env' || step.from.startsWith(folder)) return []
    return [stepProblem(step, `from must begin with ${folder}, which this plan installs, but found "${step.from}"`)]
  })
}
