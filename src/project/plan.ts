import { join } from 'node:path'
import { isSourced, type Manifest, type ManifestPart } from '../core/content/manifest.ts'
import { ConfigError } from '../core/errors.ts'
import { type BoundProject, bindPlanToProject, subjectIdOf, verifySources } from '../core/plan/binding.ts'
import type { HostConfig } from '../core/plan/host-config.ts'
import { PlanError } from '../core/plan/plan.ts'
import { type ReadyPlan, readyPlan, verifyServiceNames, verifyTemplates } from '../core/plan/ready.ts'
import { withListed } from '../install/files/spelling.ts'
import { requireInPlace, verifyDestination } from '../install/host/destination.ts'
import { type PartName, placeName, placeOf, placePath } from '../install/host/layout.ts'
import { requireSafeDestination } from '../install/host/ownership.ts'
import { refuseOutsideDirectory, warnOfOtherDirectory } from '../install/host/plugins-directory.ts'
import { presentRow, verifyProjectPlace } from '../install/host/previous-install.ts'
import { checkHost } from '../install/host/readiness.ts'
import type { DeploymentFacts } from '../install/journal/facts.ts'
import type { InstalledPart, InstallOrder, Part } from '../install/steps/context.ts'
import { hasRegularFile } from '../install/steps/drift.ts'
import type { ProjectDeployment } from './deployment.ts'
import { fetchParts, type PartSource, stagePart } from './parts.ts'
import {
  BUNDLED_PLAN,
  type ExtractedProject,
  readBundledPlan,
  readInstalledParts,
  type VerifiedProject,
} from './sealed.ts'

/**
 * Binds the project's plan to its manifest, its files and what this host can do, fetches the parts that come from
 * elsewhere, and signs plugins for this host. Throws ConfigError `invalid_plan` or `invalid_host_config`, ArtifactError
 * `invalid_manifest` or `not_a_plugin`, DeploymentError `place_taken`, `host_not_writable`, `unsafe_host`, `disk_full`
 * or `step_failed` (any other system error).
 */
export async function orderProject(
  deployment: ProjectDeployment,
  project: SealedProject,
  hostConfig: HostConfig | undefined,
): Promise<InstallOrder> {
  const { tools, record, request } = deployment
  const { manifest } = project
  tools.secrets.know(manifest.parts.map(({ shelf, id, version, folder }) => [`${shelf}/${id}`, version, folder]))
  const { bound, skipped } = bindPlan(deployment, project, hostConfig)
  const installed = readPresentParts(deployment, manifest)
  const removals = installed.filter(part => !isAmong(manifest.parts, part))
  verifyReach(deployment, { bound, skipped, manifest, removals, hostConfig })
  if (bound.parts.some(({ shelf }) => shelf === 'plugins'))
    refuseOutsideDirectory(deployment.layout, 'Correct that file')
  warnOfOtherDirectory(deployment.layout, manifest.pluginsDirname, tools.log)
  checkParts(deployment, bound.parts, removals)
  for (const { shelf, id } of bound.notInstalled)
    tools.log.notice(`The manifest lists ${shelf}/${id}, but no step of the plan installs it, so this run does not.`)
  for (const part of installed) if (isAmong(bound.notInstalled, part)) warnOfRemaining(deployment, part)
  const source = { ...project, supplied: await fetchParts(deployment, project, bound.parts) }
  verifyFetched(deployment, source, bound)
  const parts: Part[] = []
  for (const part of bound.parts) parts.push(await stagePart(deployment, source, part))
  await record.update({ plugins: pluginsOf(parts), ...sourcesOf(parts) })
  return {
    steps: bound.steps,
    snapshot: bound.snapshot,
    hostConfig,
    skipped,
    parts,
    removals,
    origin: { contract: 'project', slug: request.projectId, project_version: manifest.version },
  }
}

/** A verified project, and the digest of the sealed file. */
export type SealedProject = Omit<PartSource, 'supplied'>

/** Returns the project's installed parts, each in its present directory. */
function readPresentParts(deployment: ProjectDeployment, { pluginsDirname }: Manifest): InstalledPart[] {
  return readInstalledParts(deployment, deployment.request.projectId).map(part => {
    const installed = presentRow(deployment.layout, part.installed, pluginsDirname)
    return { ...placeOf(installed), installed }
  })
}

/**
 * Checks that each part can be installed in its place, that no part is elsewhere, and that all directories are safe.
 */
function checkParts(
  deployment: ProjectDeployment,
  parts: readonly ManifestPart[],
  removals: readonly InstalledPart[],
): void {
  const { host, layout, request, tools } = deployment
  const { allowTakeover, projectId } = request
  for (const directory of new Set([...parts, ...removals].map(part => part.directory)))
    for (const accepted of requireSafeDestination(host, directory)) tools.log.warning(accepted)
  const origin = { contract: 'project' as const, slug: projectId }
  const destinations = parts.map(target => ({ target, chosenBy: 'publisher' as const, allowTakeover, origin }))
  for (const destination of destinations) verifyDestination(layout, destination)
  requireInPlace(layout, destinations)
  for (const part of parts) checkHost(deployment, part)
}

interface ProjectReach extends ReadyPlan<BoundProject> {
  readonly manifest: Manifest
  readonly removals: readonly InstalledPart[]
  readonly hostConfig: HostConfig | undefined
}

/**
 * The publisher chooses the ids, so no id may reach a service that is not the project's. No id may reach the place of
 * another origin either, unless the operator allows a takeover.
 */
function verifyReach(
  { layout, request, tools }: ProjectDeployment,
  { bound, skipped, manifest, removals, hostConfig }: ProjectReach,
): void {
  const { allowTakeover, projectId } = request
  const origin = { contract: 'project', slug: projectId } as const
  const claim = { origin, allowTakeover, chosenBy: 'publisher', log: tools.log } as const
  const named = new Set(bound.steps.map(subjectIdOf))
  const reached = manifest.parts.filter(part => named.has(part.id) || isAmong(bound.parts, part))
  for (const part of reached) verifyProjectPlace(layout, part, claim)
  const steps = bound.steps.filter(step => !skipped.has(step.id))
  verifyServiceNames(hostConfig, { steps, removedIds: removals.map(({ id }) => id) })
}

function bindPlan(
  { request: { keepPaths }, tools }: ProjectDeployment,
  { manifest, ...project }: VerifiedProject,
  hostConfig: HostConfig | undefined,
): ReadyPlan<BoundProject> {
  return orRefusePlan({ manifest, tools }, () => {
    const plan = readBundledPlan(project.content)
    const ready = readyPlan(plan, hostConfig, () => bindPlanToProject(plan, manifest))
    verifySources(ready.bound.steps, manifest)
    const hasFile = fileTestOf(manifest, project)
    const later = new Set(manifest.parts.filter(isSourced).map(placeName))
    const kept = manifest.parts.flatMap(part => withListed(join(project.content, part.folder), keepPaths))
    verifyTemplates(ready.bound.steps, kept, from => later.has(placeOfTemplate(from)) || hasFile(from))
    return ready
  })
}

/** Checks the templates in the parts that have just been fetched: `bindPlan` could not see their files. */
function verifyFetched(
  { request, tools }: ProjectDeployment,
  { manifest, supplied }: PartSource,
  { steps }: BoundProject,
): void {
  const files = new Set([...supplied].flatMap(([place, { tree }]) => tree.files.map(({ path }) => `${place}/${path}`)))
  orRefusePlan({ manifest, tools }, () =>
    verifyTemplates(steps, request.keepPaths, from => !supplied.has(placeOfTemplate(from)) || files.has(from)),
  )
}

/**
 * Runs a check, and turns its PlanError into ConfigError `invalid_plan`. The plan is not in the operator's repository,
 * so no annotation can point to its lines. Instead, the log lists each problem with its line.
 */
function orRefusePlan<Result>(
  { manifest, tools }: Pick<VerifiedProject, 'manifest'> & Pick<ProjectDeployment, 'tools'>,
  check: () => Result,
): Result {
  try {
    return check()
  } catch (error) {
    if (!(error instanceof PlanError)) throw error
    for (const { file, line, column, message } of error.problems)
      tools.log.info(`${file}:${line}:${column}: ${message}`)
    throw new ConfigError(
      'invalid_plan',
      `Project ${manifest.projectId} ${manifest.version} has its plan in ${BUNDLED_PLAN}. ${error.message} Nothing was installed. Add what your host config lacks; the publisher must fix everything else.`,
    )
  }
}

/**
 * Warns about an installed part that the manifest lists but the plan does not install. Only the plan's author knows
 * why, so the part stays.
 */
function warnOfRemaining({ tools }: ProjectDeployment, { installed, ...place }: InstalledPart): void {
  tools.log.warning(
    `${placePath(place)} came with version ${installed.project_version} of this project, but no step of this run's plan installs it, so it stays unchanged. Remove it by hand if it must no longer run.`,
  )
}

function isAmong(places: readonly PartName[], part: PartName): boolean {
  return places.some(({ shelf, id }) => shelf === part.shelf && id === part.id)
}

function placeOfTemplate(from: string): string {
  return from.split('/', 2).join('/')
}

function pluginsOf(parts: readonly Part[]): { id: string; version: string }[] {
  return parts.flatMap(({ shelf, id, version }) => (shelf === 'plugins' ? [{ id, version }] : []))
}

function sourcesOf(parts: readonly Part[]): Pick<DeploymentFacts, 'sources'> {
  const sources = parts.flatMap(part => (part.source === undefined ? [] : [{ part: placeName(part), ...part.source }]))
  return sources.length === 0 ? {} : { sources }
}

/** Returns a test for whether the project has the file that a step of its plan names. */
function fileTestOf(manifest: Manifest, { installed, tree }: ExtractedProject): (from: string) => boolean {
  if (installed !== undefined) {
    return from => {
      const [shelf, id, ...path] = from.split('/')
      const tree = installed.get(`${shelf}/${id}`)
      return tree !== undefined && hasRegularFile(tree, path.join('/'))
    }
  }
  const files = new Set(tree.files.map(({ path }) => path))
  return from => files.has(pathInArchive(from, manifest))
}

/** A bound plan always says `plugins/`, even if that directory has another name in the archive. */
function pathInArchive(from: string, { pluginsDirname }: Manifest): string {
  return from.startsWith('plugins/') ? `${pluginsDirname}/${from.slice('plugins/'.length)}` : from
}
