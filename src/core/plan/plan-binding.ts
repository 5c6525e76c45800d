import type { SourcePosition } from '../document/source-problem.ts'
import type { Plan, PlanProblem } from './plan.ts'
import type { PlanStep } from './plan-step.ts'

export type InstallStep = Extract<PlanStep, { action: 'install_plugin' | 'install_extension' }>

const NEEDS_FILES: ReadonlySet<string> = new Set(['write_env', 'start', 'restart', 'healthcheck'])

export function isInstallStep(step: PlanStep): step is InstallStep {
  return step.action === 'install_plugin' || step.action === 'install_extension'
}

/** Whether the step can do nothing before what it is about is installed. */
export function needsFiles(step: PlanStep): boolean {
  return NEEDS_FILES.has(step.action)
}

export function installedId(step: InstallStep): string {
  return step.action === 'install_plugin' ? step.plugin : step.extension
}

/** The id that a step other than an installing one is about; undefined where it is about everything, or nothing. */
export function subjectIdOf(step: PlanStep): string | undefined {
  return 'plugin' in step && step.action !== 'install_plugin' ? step.plugin : undefined
}

/** A plan that is not for `projectId`, which a sentence calls `name`. */
export function foreignPlanProblems(plan: Plan, name: string, projectId: string): PlanProblem[] {
  if (plan.projectId === projectId) return []
  const message = `project_id must be ${name} "${projectId}", found "${plan.projectId}": this plan is for something else`
  return [problemAt(plan.file, plan.positions.projectId, message)]
}

/** Ids whose directory would stand where another id's settings are. */
export function settingsNameProblems(file: string, installSteps: readonly InstallStep[]): PlanProblem[] {
  return installSteps
    .filter(step => installedId(step).endsWith('.env'))
    .map(step => {
      const message = `"${installedId(step)}" is where another id's settings file is: choose an id that does not end in .env`
      return stepProblem(file, step, message)
    })
}

/** Steps that come before an installing step whose files they need; `steps` are in the order in which they run. */
export function prematureProblems(
  file: string,
  steps: readonly PlanStep[],
  needs: (step: PlanStep, install: InstallStep) => boolean,
): PlanProblem[] {
  const waiting = new Set(steps.filter(isInstallStep))
  return steps.flatMap(step => {
    if (isInstallStep(step)) waiting.delete(step)
    const missing = needsFiles(step) ? [...waiting].filter(install => needs(step, install)) : []
    if (missing.length === 0) return []
    const ids = missing.map(install => `"${install.id}"`).join(', ')
    return [
      stepProblem(file, step, `${step.action} would run before the files are there: add ${ids} to its depends_on`),
    ]
  })
}

export function stepProblem(file: string, step: PlanStep, message: string): PlanProblem {
  return problemAt(file, step, `step "${step.id}": ${message}`)
}

export function problemAt(file: string, { line, column }: SourcePosition, message: string): PlanProblem {
  return { message, file, line, column }
}
