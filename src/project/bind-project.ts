import { join } from 'node:path'
import { ArtifactError } from '../core/errors.ts'
import type { HostConfig } from '../core/host-config.ts'
import { MAX_SMALL_FILE_BYTES } from '../core/limits.ts'
import type { Manifest } from '../core/manifest.ts'
import { type Plan, parsePlan } from '../core/plan.ts'
import { type BoundProject, bindPlanToProject } from '../core/project-plan.ts'
import { readyPlan, verifyTemplates } from '../core/ready-plan.ts'
import { checkHost } from '../install/host.ts'
import { readSmallFile } from '../install/small-file.ts'
import type { NewThing } from '../install/steps/step-context.ts'
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
  const { manifest, content, tree } = project
  const plan = await readPlan(content)
  const { bound, skipped } = readyPlan(plan, hostConfig, () => bindPlanToProject(plan, manifest))
  const files = new Set(tree.files.map(file => file.path))
  verifyTemplates(plan.file, bound.steps, from => files.has(pathInArchive(from, manifest)), run.request.keepPaths)
  for (const { shelf, id } of bound.things) await checkHost(run.layout, shelf, id)
  for (const { shelf, id } of bound.notInstalled)
    run.tools.log.notice(`The manifest lists ${shelf}/${id}, but no step of the plan installs it: it is left out.`)
  const things: NewThing[] = []
  for (const thing of bound.things) things.push(await describePart(run, project, thing, artifactSha256))
  return { manifest, bound, things, hostConfig, skipped }
}

async function readPlan(content: string): Promise<Plan> {
  const text = await readSmallFile(join(content, PLAN), MAX_SMALL_FILE_BYTES).catch(() => undefined)
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
