import { z } from 'zod/mini'
import { toDeployError } from '../core/errors.ts'
import {
  idSchema,
  kindSchema,
  OPERATOR_YAML_LIMITS,
  projectIdSchema,
  slugSchema,
  versionSchema,
} from '../core/identifiers.ts'
import { installPath, layoutOf, placeOf } from '../install/host/layout.ts'
import type { RunResult } from '../install/reports/result.ts'
import { type Incomplete, refuse as refuseRun } from '../install/run/contract.ts'
import type { DeploymentTools } from '../install/run/deployment.ts'
import { createMarketplaceClient, createMarketplaceSender, type MarketplaceAccess } from '../marketplace/hub.ts'
import { parseRequestUrl } from '../net/policy.ts'
import { type RollbackRequest, type RollbackSubject, subjectOf } from '../rollback/deployment.ts'
import { rollBackVersion } from '../rollback/rollback.ts'
import { readWorkspace } from '../runner/files.ts'
import { readConnection, readHost } from '../runner/host-inputs.ts'
import { apiKeySchema, baseUrlSchema, booleanSchema, InputReader, inputError } from '../runner/inputs.ts'
import {
  buildDeploymentOutputs,
  failStep,
  outputsOfFailure,
  runPostStep,
  Step,
  type StepInputs,
} from '../runner/step.ts'
import { FLOWS } from './flows.ts'

/**
 * The request for a rollback, and the access to the hub that gets its report. If no hub gets a report, `access` is
 * undefined.
 */
interface ReportedRollback extends RollbackRequest {
  readonly access: MarketplaceAccess | undefined
}

export type RollbackInputs = StepInputs<Incomplete<ReportedRollback>>

const ROLLBACK = subjectOf<ReportedRollback>(
  ({ access }, { wires }) =>
    access && createMarketplaceSender(createMarketplaceClient(wires.reportWire, access), access),
)

/**
 * The rollback action: reads inputs, restores one version, and sets outputs. Fails the step unless everything
 * succeeded.
 */
export async function rollback(): Promise<void> {
  let step: Step | undefined
  try {
    const inputs = readRollbackInputs(readWorkspace())
    step = new Step(inputs, outputsOfFailure)
    const tools = step.deploymentTools(inputs.connection, FLOWS, result => buildRollbackOutputs(result, inputs.request))
    const refused = await refuseInputs(inputs, tools)
    // If there are no problems, every required input was parsed, and only optional ones are undefined.
    const request = inputs.request as ReportedRollback
    step.finishDeployment(refused ?? (await rollBackVersion(ROLLBACK, request, tools)))
  } catch (error) {
    failStep(step, error)
  } finally {
    step?.close()
  }
}

/** The rollback action's post step; see `runPostStep`. */
export async function rollbackPost(): Promise<void> {
  await runPostStep(() => readRollbackInputs(readWorkspace()), FLOWS, ROLLBACK)
}

/**
 * Reads every input of the rollback action and collects all problems. Only an input that was left out gets its default.
 */
export function readRollbackInputs(workspace: string): RollbackInputs {
  const read = new InputReader('rollback', workspace)
  const isSlugForId = namesSlugForId(read)
  const subject = readSubject(read, isSlugForId)
  const slug = read.optional('slug', slugSchema)
  const request = {
    subject,
    slug,
    access: isSlugForId ? undefined : readAccess(read, { subject, slug }),
    toVersion: read.optional('to-version', versionSchema),
    plan: read.hostFile('install-plan', OPERATOR_YAML_LIMITS.bytes),
    dryRun: read.withDefault('dry-run', booleanSchema, false),
    ...readHost(read),
    // The restored version was here before, as the same plugin, service or project, so a rollback takes nothing over.
    allowTakeover: false,
    redeploy: false,
    settings: new Map<string, string>(),
  }
  return {
    request,
    connection: readConnection(read),
    ...read.given(),
  }
}

/** Returns every output of rollback/action.yml. An unknown value is empty. */
export function buildRollbackOutputs(
  result: RunResult,
  { subject, projectRoot }: Pick<Incomplete<RollbackRequest>, 'subject' | 'projectRoot'>,
): Record<string, string> {
  const isProject = subject?.contract === 'project'
  return {
    ...buildDeploymentOutputs(result, projectRoot && subject && pathOf(subject, projectRoot, result)),
    'project-id': isProject ? subject.projectId : '',
    plugins: isProject ? JSON.stringify(result.report.plugins ?? []) : '',
  }
}

function pathOf(subject: RollbackSubject, projectRoot: string, { report }: RunResult): string {
  if (subject.contract === 'project') return projectRoot
  return installPath(layoutOf(projectRoot), placeOf({ ...report, ...subject }))
}

/** True if a slug was given in place of an id: no id is set, and a slug alone is not enough for a report. */
function namesSlugForId(read: InputReader): boolean {
  return read.isGiven('slug') && !['id', 'project-id', 'hub-url', 'api-key'].some(name => read.isGiven(name))
}

function readSubject(read: InputReader, isSlugForId: boolean): RollbackSubject | undefined {
  const isNamed = read.isGiven('id') || read.isGiven('project-id')
  const kind = read.withDefault('kind', z.pipe(z.string(), kindSchema), 'plugin')
  const projectId = read.optional('project-id', projectIdSchema)
  if (isSlugForId) {
    read.require(
      "id is required, but slug was given: set id to the name of the part's directory below plugins/ or extensions/",
    )
    return undefined
  }
  if (!isNamed) {
    read.require('id, or project-id for a project, is required, but neither was given')
    return undefined
  }
  const id = read.optional('id', idSchema)
  if (projectId !== undefined) {
    if (id !== undefined)
      read.refuse('id', 'names one part, but project-id rolls back all parts of a project: set only one of the two')
    return { contract: 'project', projectId }
  }
  return kind === undefined || id === undefined ? undefined : { contract: 'marketplace', kind, id }
}

/** Reads the access to the hub that gets the report. Returns undefined if no input asks for a report. */
function readAccess(
  read: InputReader,
  { subject, slug }: { readonly subject: RollbackSubject | undefined; readonly slug: string | undefined },
): MarketplaceAccess | undefined {
  const hub = read.optional('hub-url', baseUrlSchema)
  const deployments = read.withDefault<string | undefined>('deployments-url', baseUrlSchema, hub)
  const apiKey = read.optionalSecret('api-key', apiKeySchema)
  if (hub === undefined && apiKey === undefined && slug === undefined) return undefined
  if (subject?.contract === 'project') {
    read.refuse(
      'project-id',
      'names a project, whose rollback is not reported to a hub: leave out hub-url, api-key and slug',
    )
    return undefined
  }
  for (const [name, value] of Object.entries({ 'hub-url': hub, 'api-key': apiKey, slug })) {
    if (value === undefined && !read.isRefused(name))
      read.refuse(name, 'is needed for a report: set hub-url, api-key and slug, or none of them')
  }
  if (!hub || !deployments || !apiKey || !slug || !subject) return undefined
  return { bases: { hub, services: hub, deployments }, slug, kind: subject.kind, apiKey }
}

/** Ends a run whose inputs cannot be used. Returns undefined if they can. */
async function refuseInputs(inputs: RollbackInputs, tools: DeploymentTools): Promise<RunResult | undefined> {
  const { request, connection, problems } = inputs
  if (problems.length > 0) return await refuseRun(ROLLBACK, request, { error: inputError(problems), tools })
  try {
    if (request.access !== undefined) parseRequestUrl(request.access.bases.deployments, connection)
    return undefined
  } catch (error) {
    // An insecure hub gets no report either.
    return await refuseRun(ROLLBACK, { ...request, access: undefined }, { error: toDeployError(error), tools })
  }
}
