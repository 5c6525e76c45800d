import type { Kind } from './identifiers.ts'
import { type Plan, PlanError, type PlanProblem } from './plan.ts'
import { orderSteps } from './plan-order.ts'
import type { PlanStep } from './plan-step.ts'
import type { SourcePosition } from './source-problem.ts'

export type InstallStep = Extract<PlanStep, { action: 'install_plugin' | 'install_extension' }>

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
 * Binds a plan to the one artifact that it installs: its `project_id` equals the slug (contract 4.3, rule 6), it installs
 * exactly one thing and of this kind, every other step is about that thing, templates come from it, and nothing that
 * needs its files runs before they are there. Throws PlanError `invalid_plan` with everything that does not fit.
 */
export function bindPlanToArtifact(plan: Plan, artifact: { kind: Kind; slug: string }): BoundPlan {
  const installSteps = plan.steps.filter(isInstallStep)
  const [installStep] = installSteps
  const problems = [...projectProblems(plan, artifact.slug), ...installProblems(plan, installSteps, artifact.kind)]
  if (installStep === undefined) throw new PlanError(problems)
  const steps = orderSteps(plan)
  problems.push(...strangerProblems(plan, installStep), ...templateProblems(plan, installStep))
  problems.push(...orderProblems(plan.file, steps, installStep))
  if (problems.length > 0) throw new PlanError(problems)
  return { id: installedId(installStep), installStep, steps, snapshot: steps.some(step => step.snapshot) }
}

const INSTALL_ACTIONS = { plugin: 'install_plugin', service: 'install_extension' } as const
const NEEDS_FILES: ReadonlySet<string> = new Set(['write_env', 'start', 'restart', 'healthcheck'])

function isInstallStep(step: PlanStep): step is InstallStep {
  return step.action === 'install_plugin' || step.action === 'install_extension'
}

function installedId(step: InstallStep): string {
  return step.action === 'install_plugin' ? step.plugin : step.extension
}

function projectProblems(plan: Plan, slug: string): PlanProblem[] {
  if (plan.projectId === slug) return []
  const message = `project_id must be the slug "${slug}", found "${plan.projectId}": this plan is for something else`
  return [problemAt(plan.file, plan.positions.projectId, message)]
}

function installProblems(plan: Plan, installSteps: readonly InstallStep[], kind: Kind): PlanProblem[] {
  const action = INSTALL_ACTIONS[kind]
  const [first] = installSteps
  if (first === undefined) {
    return [
      problemAt(plan.file, plan.positions.steps, `no step installs the ${kind}: one with action ${action} is needed`),
    ]
  }
  const wrongKind = installSteps
    .filter(step => step.action !== action)
    .map(step =>
      stepProblem(plan.file, step, `${step.action} does not install a ${kind}: use ${action}, or the other kind`),
    )
  const settings = installSteps
    .filter(step => installedId(step).endsWith('.env'))
    .map(step =>
      stepProblem(
        plan.file,
        step,
        `"${installedId(step)}" is where another id's settings file is: choose an id that does not end in .env`,
      ),
    )
  const further = installSteps
    .slice(1)
    .map(step => stepProblem(plan.file, step, `one artifact is installed once, and step "${first.id}" does it`))
  return [...wrongKind, ...settings, ...further]
}

function strangerProblems(plan: Plan, installStep: InstallStep): PlanProblem[] {
  const id = installedId(installStep)
  return plan.steps.flatMap(step => {
    const plugin = 'plugin' in step && step.action !== 'install_plugin' ? step.plugin : undefined
    if (plugin === undefined || plugin === id) return []
    return [stepProblem(plan.file, step, `plugin must be "${id}", which this plan installs, found "${plugin}"`)]
  })
}

function templateProblems(plan: Plan, installStep: InstallStep): PlanProblem[] {
  const folder = `${installStep.action === 'install_plugin' ? 'plugins' : 'extensions'}/${installedId(installStep)}/`
  return plan.steps.flatMap(step => {
    if (step.action !== 'write_env' || step.from.startsWith(folder)) return []
    return [
      stepProblem(plan.file, step, `from must begin with ${folder}, which this plan installs, found "${step.from}"`),
    ]
  })
}

function orderProblems(file: string, steps: readonly PlanStep[], installStep: InstallStep): PlanProblem[] {
  return steps
    .slice(0, steps.indexOf(installStep))
    .filter(step => NEEDS_FILES.has(step.action))
    .map(step => {
      const message = `${step.action} would run before the files are there: add "${installStep.id}" to its depends_on`
      return stepProblem(file, step, message)
    })
}

function stepProblem(file: string, step: PlanStep, message: string): PlanProblem {
  return problemAt(file, step, `step "${step.id}": ${message}`)
}

function problemAt(file: string, { line, column }: SourcePosition, message: string): PlanProblem {
  return { message, file, line, column }
}
