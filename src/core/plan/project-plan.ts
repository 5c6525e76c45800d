import type { Manifest, ManifestPart } from '../content/manifest.ts'
import { didYouMean } from '../document/near-miss.ts'
import { problemAt } from '../document/source-problem.ts'
import { type Plan, PlanError, type PlanProblem } from './plan.ts'
import {
  foreignPlanProblems,
  type InstallStep,
  installedId,
  isInstallStep,
  needsFiles,
  placeOfInstall,
  placeOfSettings,
  prematureProblems,
  settingsNameProblems,
  stepProblem,
  subjectIdOf,
} from './plan-binding.ts'
import { orderSteps } from './plan-order.ts'
import type { PlanStep } from './plan-step.ts'

/** A plan that fits a project. */
export interface BoundProject {
  /**
   * In the order in which they run. The template of a plugin has a path `plugins/...`, even if the archive has another
   * name for that directory.
   */
  readonly steps: readonly PlanStep[]
  /** The installed parts, in the same order; at least one. */
  readonly parts: readonly ManifestPart[]
  /** True if some step asks to keep the replaced versions after success. */
  readonly snapshot: boolean
  /** The parts of the manifest that no step installs. */
  readonly notInstalled: readonly ManifestPart[]
}

/**
 * Binds a project's own plan to its manifest. Both must belong to the same project, and the manifest must list every
 * part that a step names. The plan must install at least one part; no id may be installed twice or end in `.env`.
 * Templates must come from installed parts, and no step that needs a part's files may run before they are installed. A
 * step without `plugin` needs the files of all parts. Throws PlanError `invalid_plan` with every problem.
 */
export function bindPlanToProject(plan: Plan, manifest: Manifest): BoundProject {
  const steps = orderSteps({ steps: plan.steps.map(step => withHostPath(step, manifest.pluginsDirname)) })
  const problems = [
    ...foreignPlanProblems(plan, "the project's id", manifest.projectId),
    ...installProblems({ ...plan, steps }, manifest),
    ...strangerProblems(steps, manifest),
    ...templateProblems(steps),
    ...prematureProblems(steps, needs),
  ]
  if (problems.length > 0) throw new PlanError(problems)
  const installSteps = steps.filter(isInstallStep)
  const installed = new Set(installSteps.map(placeOfInstall))
  const isInstalled = (part: ManifestPart) => installed.has(`${part.shelf}/${part.id}`)
  return {
    steps,
    parts: installSteps.flatMap(step => manifest.parts.filter(part => isPartOf(part, step))),
    snapshot: steps.some(step => step.snapshot),
    notInstalled: manifest.parts.filter(part => !isInstalled(part)),
  }
}

function withHostPath(step: PlanStep, pluginsDirname: string): PlanStep {
  if (step.action !== 'write_env' || !step.from.startsWith(`${pluginsDirname}/`)) return step
  return { ...step, from: `plugins/${step.from.slice(pluginsDirname.length + 1)}` }
}

function shelfOf(step: InstallStep): ManifestPart['shelf'] {
  return step.action === 'install_plugin' ? 'plugins' : 'extensions'
}

function isPartOf(part: ManifestPart, step: InstallStep): boolean {
  return part.shelf === shelfOf(step) && part.id === installedId(step)
}

/**
 * Refuses a plan with a source that the manifest does not repeat: the archive may contain only a stub of that part.
 * Throws PlanError `invalid_plan`.
 */
export function verifySources(steps: readonly PlanStep[], manifest: Manifest): void {
  const problems = steps
    .filter(isInstallStep)
    .filter(step => step.source !== undefined)
    .filter(step => manifest.parts.some(part => isPartOf(part, step) && part.source === null))
    .map(step => stepProblem(step, `manifest.json does not repeat the source of "${installedId(step)}"`))
  if (problems.length > 0) throw new PlanError(problems)
}

function installProblems({ steps, positions }: Plan, manifest: Manifest): PlanProblem[] {
  const installSteps = steps.filter(isInstallStep)
  if (installSteps.length === 0) {
    const message = 'no step installs anything: add one with action install_plugin or install_extension'
    return [problemAt(positions.steps, message)]
  }
  return [
    ...unknownPartProblems(installSteps, manifest),
    ...repeatedIdProblems(installSteps),
    ...settingsNameProblems(installSteps),
  ]
}

function unknownPartProblems(installSteps: readonly InstallStep[], manifest: Manifest): PlanProblem[] {
  return installSteps.flatMap(step => {
    if (manifest.parts.some(part => isPartOf(part, step))) return []
    const ids = manifest.parts.filter(({ shelf }) => shelf === shelfOf(step)).map(({ id }) => id)
    const message = `the manifest has no "${installedId(step)}" among its ${shelfOf(step)}${didYouMean(installedId(step), ids)}`
    return [stepProblem(step, message)]
  })
}

/** Refuses an id that is installed twice, even once on each shelf: steps and services name parts by their id alone. */
function repeatedIdProblems(installSteps: readonly InstallStep[]): PlanProblem[] {
  const first = new Map<string, InstallStep>()
  return installSteps.flatMap(step => {
    const other = first.get(installedId(step))
    if (other === undefined) first.set(installedId(step), step)
    if (other === undefined) return []
    return [
      stepProblem(
        step,
        `"${installedId(step)}" can be installed only once, but step "${other.id}" already installs it`,
      ),
    ]
  })
}

function strangerProblems(steps: readonly PlanStep[], manifest: Manifest): PlanProblem[] {
  const known = new Set(manifest.parts.map(({ id }) => id))
  const installed = new Set(steps.filter(isInstallStep).map(installedId))
  return steps.flatMap(step => {
    const id = subjectIdOf(step)
    if (id === undefined) return []
    if (!known.has(id)) {
      return [stepProblem(step, `the manifest has nothing with the id "${id}"${didYouMean(id, known)}`)]
    }
    if (!needsFiles(step) || installed.has(id)) return []
    return [stepProblem(step, `${step.action} needs "${id}", which no step of this plan installs`)]
  })
}

/**
 * Refuses templates of parts that are not installed. A template's first component also decides the shelf of the
 * settings, so the settings' part must be installed on that shelf.
 */
function templateProblems(steps: readonly PlanStep[]): PlanProblem[] {
  const places = new Set(steps.filter(isInstallStep).map(placeOfInstall))
  return steps.flatMap(step => {
    if (step.action !== 'write_env') return []
    const place = templatePlaceOf(step)
    if (places.has(place) && places.has(placeOfSettings(step))) return []
    const rule = places.has(place)
      ? `must begin with plugins/ or extensions/, whichever contains "${step.plugin}"`
      : 'must begin with plugins/<id>/ or extensions/<id>/ of a part that this plan installs'
    return [stepProblem(step, `from ${rule}, but found "${step.from}"`)]
  })
}

function needs(step: PlanStep, install: InstallStep): boolean {
  const id = subjectIdOf(step)
  return (
    id === undefined ||
    id === installedId(install) ||
    (step.action === 'write_env' && templatePlaceOf(step) === placeOfInstall(install))
  )
}

function templatePlaceOf(step: { readonly from: string }): string {
  return step.from.split('/', 2).join('/')
}
