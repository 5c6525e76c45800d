import type { Manifest, ManifestPart } from '../content/manifest.ts'
import type { Kind } from '../identifiers.ts'
import { didYouMean, problemAt } from '../yaml/problems.ts'
import { orderSteps, type Plan, PlanError, type PlanProblem, type ReadablePlan, wholePlan } from './plan.ts'
import { type InstallAction, isInstallAction, isMarkerAction, type MarkerAction, type PlanStep } from './step.ts'

type InstallStep = Extract<PlanStep, { action: InstallAction }>

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
function needsFiles(step: PlanStep): boolean {
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
function foreignPlanProblems(
  plan: Pick<Plan, 'projectId' | 'positions'>,
  name: string,
  projectId: string,
): PlanProblem[] {
  if (plan.projectId === projectId) return []
  const message = `project_id must be ${name} "${projectId}", but found "${plan.projectId}": this plan is for another plugin, service or project`
  return [problemAt(plan.positions.projectId, message)]
}

/** Refuses ids whose directory would take the place of another id's settings file. */
function settingsNameProblems(installSteps: readonly InstallStep[]): PlanProblem[] {
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
function prematureProblems(
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

function shelfOfStep(step: InstallStep): ManifestPart['shelf'] {
  return step.action === 'install_plugin' ? 'plugins' : 'extensions'
}

function isPartOf(part: ManifestPart, step: InstallStep): boolean {
  return part.shelf === shelfOfStep(step) && part.id === installedId(step)
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
    const ids = manifest.parts.filter(({ shelf }) => shelf === shelfOfStep(step)).map(({ id }) => id)
    const message = `the manifest has no "${installedId(step)}" among its ${shelfOfStep(step)}${didYouMean(installedId(step), ids)}`
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
  const problems = [...foreign, ...singleInstallProblems(plan, kind)]
  if (installStep === undefined || plan.hidesInstall) return problems
  problems.push(...otherIdProblems(plan, installStep), ...templateFolderProblems(plan, installStep))
  if (!plan.isWhole) return problems
  return [...problems, ...prematureProblems(orderSteps(plan), (_, install) => install === installStep)]
}

const INSTALL_ACTIONS = { plugin: 'install_plugin', service: 'install_extension' } as const

function singleInstallProblems(plan: ReadablePlan, kind: Kind): PlanProblem[] {
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

function otherIdProblems(plan: ReadablePlan, installStep: InstallStep): PlanProblem[] {
  const id = installedId(installStep)
  return plan.steps.flatMap(step => {
    const subject = subjectIdOf(step)
    if (subject === undefined || subject === id) return []
    return [stepProblem(step, `plugin must be "${id}", which this plan installs, but found "${subject}"`)]
  })
}

function templateFolderProblems(plan: ReadablePlan, installStep: InstallStep): PlanProblem[] {
  const folder = `${installStep.action === 'install_plugin' ? 'plugins' : 'extensions'}/${installedId(installStep)}/`
  return plan.steps.flatMap(step => {
    if (step.action !== 'write_env' || step.from.startsWith(folder)) return []
    return [stepProblem(step, `from must begin with ${folder}, which this plan installs, but found "${step.from}"`)]
  })
}
