import { join } from 'node:path'
import type { Manifest, ManifestPart } from '../core/content/manifest.ts'
import { ArtifactError, ConfigError } from '../core/errors.ts'
import { MAX_SMALL_FILE_BYTES } from '../core/limits.ts'
import type { HostConfig } from '../core/plan/host-config.ts'
import { type Plan, PlanError, parsePlan } from '../core/plan/plan.ts'
import { type BoundProject, bindPlanToProject } from '../core/plan/project-plan.ts'
import { type ReadyPlan, readyPlan, verifyTemplates } from '../core/plan/ready-plan.ts'
import { tryReadSmallFileSync } from '../install/files/read-small-file.ts'
import type { Place } from '../install/host/layout.ts'
import { checkHost } from '../install/host/readiness.ts'
import type { InstalledThing, NewThing } from '../install/steps/step-context.ts'
import { readInstalledParts } from './installed-parts.ts'
import { describePart } from './project-part.ts'
import type { Run } from './run.ts'
import type { VerifiedProject } from './verify-project.ts'

const PLAN = 'deployment/install.yaml'

/** A verified project, bound to its plan and to this host. */
export interface ReadyProject {
  manifest: Manifest
  bound: BoundProject
  /** What the plan installs. */
  things: readonly NewThing[]
  /** What an earlier version of the project has installed, and this one does not bring. */
  oldThings: readonly InstalledThing[]
  hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` in the host config leaves out. */
  skipped: ReadonlySet<string>
}

/**
 * Binds the plan that the artifact brings to its manifest, its files and what this host can do; signs plugins for this
 * host. Throws PlanError `invalid_plan`, ArtifactError `not_a_plugin`, DeploymentError `host_not_writable`.
 */
export async function bindProject(
  run: Run,
  project: VerifiedProject,
  artifactSha256: string,
  hostConfig: HostConfig | undefined,
): Promise<ReadyProject> {
  const { manifest } = project
  const { bound, skipped } = bindPlan(run, project, hostConfig)
  for (const place of bound.parts) checkHost(run.layout, place)
  for (const { shelf, id } of bound.notInstalled)
    run.tools.log.notice(`The manifest lists ${shelf}/${id}, but no step of the plan installs it: it is left out.`)
  const parts = readInstalledParts(run.layout, run.request.projectId)
  for (const part of parts) if (isAmong(bound.notInstalled, part)) warnOfLeft(part, run)
  const oldThings = parts.filter(part => !isAmong(manifest.parts, part))
  await run.record.update({ plugins: pluginsOf(bound.parts) })
  const things: NewThing[] = []
  for (const thing of bound.parts) things.push(await describePart(run, project, thing, artifactSha256))
  return { manifest, bound, things, oldThings, hostConfig, skipped }
}

/** The plan's lines are in no file of the operator's repository, so its problems are told in the log and by one sentence. */
function bindPlan(
  { request, tools }: Run,
  { manifest, content, tree }: VerifiedProject,
  hostConfig: HostConfig | undefined,
): ReadyPlan<BoundProject> {
  try {
    const plan = readPlan(content)
    const ready = readyPlan(plan, hostConfig, () => bindPlanToProject(plan, manifest))
    const files = new Set(tree.files.map(file => file.path))
    const hasFile = (from: string): boolean => files.has(pathInArchive(from, manifest))
    verifyTemplates(ready.bound.steps, request.keepPaths, hasFile)
    return ready
  } catch (error) {
    if (!(error instanceof PlanError)) throw error
    for (const { file, line, column, message } of error.problems)
      tools.log.info(`${file}:${line}:${column}: ${message}`)
    throw new ConfigError(
      'invalid_plan',
      `Project ${manifest.projectId} ${manifest.version} brings its plan, ${PLAN}. ${error.message} Nothing was installed. What the host config lacks is yours to add; everything else the publisher must mend.`,
    )
  }
}

/** What a version brings and its plan does not install is not taken away: only who wrote the plan knows why. */
function warnOfLeft({ shelf, id, installed }: InstalledThing, { tools }: Run): void {
  tools.log.warning(
    `${shelf}/${id} came with version ${installed.project_version} of this project, and no step of this version's plan installs it: it stays as it is. Remove it by hand if it is not to run any more.`,
  )
}

function isAmong(places: readonly Place[], thing: Place): boolean {
  return places.some(({ shelf, id }) => shelf === thing.shelf && id === thing.id)
}

function pluginsOf(parts: readonly ManifestPart[]): { id: string; version: string }[] {
  return parts.flatMap(({ shelf, id, version }) => (shelf === 'plugins' ? [{ id, version }] : []))
}

function readPlan(content: string): Plan {
  const text = tryReadSmallFileSync(join(content, PLAN), MAX_SMALL_FILE_BYTES)
  if (text !== undefined) return parsePlan(text, PLAN)
  throw new ArtifactError(
    'invalid_manifest',
    `The project has no ${PLAN}, a file of at most ${MAX_SMALL_FILE_BYTES} bytes: nothing was installed; its publisher must seal it with its plan.`,
  )
}

/** A bound plan says `plugins/`, whatever the archive calls that directory. */
function pathInArchive(from: string, { pluginsDirname }: Manifest): string {
  return from.startsWith('plugins/') ? `${pluginsDirname}/${from.slice('plugins/'.length)}` : from
}
