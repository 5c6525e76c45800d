import { problemAt } from '../document/source-problem.ts'
import { type InstallAction, isInstallAction, isMarkerAction, type MarkerAction } from './action.ts'
import type { Plan, PlanProblem } from './plan.ts'
import type { PlanStep } from './plan-step.ts'

export type InstallStep = Extract<PlanStep, { action: InstallAction }>

type MarkerStep = Extract<PlanStep, { action: MarkerAction }>

const NEEDS_FILES: ReadonlySet<string> = new Set(['write_env', 'start', 'restart', 'healthcheck'])

export function isInstallStep(step: PlanStep): step is InstallStep {
  return isInstallAction(step.action)
}

/** True if the step has nothing to do; see `isMarkerAction`. */
export function isMarkerStep(step: PlanStep): step is MarkerStep {
  return isMarkerAction(step.action)
}

/** True if the step works on files that must be installed before it runs. */
export function needsFiles(step: PlanStep): boolean {
  return NEEDS_FILES.has(step.action)
}

export function installedId(step: InstallStep): string {
  return step.action === 'install_plugin' ? step.plugin : step.extension
}

/** Returns the place of the part that a step installs, `<shelf>/<id>`. */
export function placeOfInstall(step: InstallStep): string {
  return step.action === 'install_plugin' ? `plugins/${step.plugin}` : `extensions/${step.extension}`
}

/** Returns the place of the part, `<shelf>/<id>`, whose settings a `write_env` step creates. */
export function placeOfSettings({ from, plugin }: Extract<PlanStep, { action: 'write_env' }>): string {
  return `${from.split('/')[0]}/${plugin}`
}

/** Returns the id that a step works on without installing it; undefined if it works on all parts, or on none. */
export function subjectIdOf(step: PlanStep): string | undefined {
  return 'plugin' in step && step.action !== 'install_plugin' ? step.plugin : undefined
}

/** Refuses a plan whose `project_id` is not `projectId`, which the message calls `name`. */
export function foreignPlanProblems(
  plan: Pick<Plan, 'projectId' | 'positions'>,
  name: string,
  projectId: string,
): PlanProblem[] {
  if (plan.projectId === projectId) return []
  const message = `project_id must be ${name} "${projectId}", but found "${plan.projectId}": this plan is for another plugin, service or project`
  return [problemAt(plan.positions.projectId, message)]
}

/** Refuses ids whose directory would take the place of another id's settings file. */
export function settingsNameProblems(installSteps: readonly InstallStep[]): PlanProblem[] {
  return installSteps
    .filter(step => installedId(step).endsWith('.env'))
    .map(step => {
      const message = `"${installedId(step)}" may be the name of another id's settings file: choose an id that does not end in .env`
      return stepProblem(step, message)
    })
}

/**
 * Refuses steps that come before an installing step whose files they need; `steps` are in the order in which they run.
 */
export function prematureProblems(
  steps: readonly PlanStep[],
  needs: (step: PlanStep, install: InstallStep) => boolean,
): PlanProblem[] {
  const waiting = new Set(steps.filter(isInstallStep))
  return steps.flatMap(step => {
    if (isInstallStep(step)) waiting.delete(step)
    const missing = needsFiles(step) ? [...waiting].filter(install => needs(step, install)) : []
    if (missing.length === 0) return []
    const ids = missing.map(install => `"${install.id}"`).join(', ')
    return [stepProblem(step, `${step.action} would run before the files are installed: add ${ids} to its depends_on`)]
  })
}

export function stepProblem(step: PlanStep, message: string): PlanProblem {
  return problemAt(step, `step "${step.id}": ${message}`)
}
