import { z } from 'zod/mini'
import { type DeployError, toDeployError } from '../core/errors.ts'
import {
  kindSchema,
  OPERATOR_YAML_LIMITS,
  slugSchema,
  versionSchema,
  writtenPluginsDirectorySchema,
} from '../core/identifiers.ts'
import { installPath, layoutOf, placeOf } from '../install/host/layout.ts'
import type { RunResult } from '../install/reports/result.ts'
import { type Incomplete, refuse as refuseRun } from '../install/run/contract.ts'
import type { DeploymentTools } from '../install/run/deployment.ts'
import { checkInstalled } from '../marketplace/check.ts'
import { deployArtifact } from '../marketplace/deploy.ts'
import { type DeployRequest, MARKETPLACE } from '../marketplace/deployment.ts'
import { parseRequestUrl } from '../net/policy.ts'
import { readWorkspace } from '../runner/files.ts'
import { type Connection, readConnection, readHostInputs } from '../runner/host-inputs.ts'
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

type IncompleteRequest = Incomplete<DeployRequest>
export type DeployInputs = StepInputs<IncompleteRequest>

/**
 * The deploy action: reads inputs, runs one deployment, and sets outputs. Fails the step unless everything succeeded.
 * At the end of a successful run that changed the host, calls `onInstalled`.
 */
export async function deploy(onInstalled: () => void = () => {}): Promise<void> {
  let step: Step | undefined
  try {
    const inputs = readDeployInputs(readWorkspace())
    step = new Step(inputs, outputsOfFailure)
    const tools = step.deploymentTools(inputs.connection, FLOWS, result =>
      buildDeployOutputs(result, inputs.request.projectRoot),
    )
    const refused = await refuseInputs(inputs, tools)
    // If there are no problems, every required input was parsed, and only optional ones are undefined.
    const request = inputs.request as DeployRequest
    const run = request.checkOnly ? checkInstalled : deployArtifact
    const ended = refused ?? (await run(request, tools))
    step.finishDeployment(ended)
    if (ended.report.outcome === 'success' && ended.report.changed && ended.error === undefined) onInstalled()
  } catch (error) {
    failStep(step, error)
  } finally {
    step?.close()
  }
}

/** The deploy action's post step; see `runPostStep`. */
export async function deployPost(): Promise<void> {
  await runPostStep(() => readDeployInputs(readWorkspace()), FLOWS, MARKETPLACE)
}

/**
 * Reads every input of the deploy action and collects all problems. Only an input that was left out gets its default.
 */
export function readDeployInputs(workspace: string): DeployInputs {
  const read = new InputReader('deploy', workspace)
  const request = {
    apiKey: read.requiredSecret('api-key', apiKeySchema),
    signingSecret: read.requiredSecret('signing-secret'),
    bases: readBases(read),
    slug: read.required('slug', slugSchema),
    pluginsDirectory: read.optional('plugins-directory', writtenPluginsDirectorySchema),
    kind: read.withDefault('kind', z.pipe(z.string(), kindSchema), 'plugin'),
    version: read.withDefault('version', versionSchema, 'latest'),
    plan: read.hostFile('install-plan', OPERATOR_YAML_LIMITS.bytes),
    dryRun: read.withDefault('dry-run', booleanSchema, false),
    checkOnly: read.withDefault('check-only', booleanSchema, false),
    ...readHostInputs(read),
  }
  if (request.checkOnly) refuseUnclearCheck(read, request)
  refuseUnusedSettings(read, request)
  return {
    request,
    connection: readConnection(read),
    ...read.given(),
  }
}

/** Returns every output of action.yml. An unknown value is empty. */
export function buildDeployOutputs(result: RunResult, projectRoot: string | undefined): Record<string, string> {
  const { kind, id, ...report } = result.report
  const isKnown = projectRoot !== undefined && id !== null && kind !== null
  return buildDeploymentOutputs(
    result,
    isKnown ? installPath(layoutOf(projectRoot), placeOf({ ...report, kind, id })) : undefined,
  )
}

/**
 * With `check-only`, the run asks no hub, so the inputs must name the version and the digest. They must not ask for a
 * dry run or a redeploy.
 */
function refuseUnclearCheck(read: InputReader, request: IncompleteRequest): void {
  if (request.version === 'latest') read.refuse('version', 'must name a version with check-only: true')
  if (request.artifactSha256 === undefined && !read.isRefused('artifact-sha256'))
    read.refuse('artifact-sha256', 'must be set with check-only: true')
  if (request.dryRun) read.refuse('dry-run', 'cannot be true with check-only: true, which changes nothing either')
  if (request.redeploy) read.refuse('redeploy', 'cannot be true with check-only: true, which runs only health checks')
}

/** Without a plan, no step names a template for the settings, so nothing would use them. */
function refuseUnusedSettings(read: InputReader, { plan, settings }: IncompleteRequest): void {
  if (plan !== undefined || read.isRefused('install-plan') || !settings?.size) return
  read.refuse(
    'settings',
    'needs a plan with a write_env step that names a template, but install-plan names no file, and the default plan has no write_env step',
  )
}

function readBases(read: InputReader): DeployRequest['bases'] | undefined {
  const hub = read.required('hub-url', baseUrlSchema)
  const services = read.withDefault<string | undefined>('services-url', baseUrlSchema, hub)
  const deployments = read.withDefault<string | undefined>('deployments-url', baseUrlSchema, hub)
  return hub && services && deployments ? { hub, services, deployments } : undefined
}

/** Ends a run whose inputs cannot be used. Returns undefined if they can. */
async function refuseInputs(inputs: DeployInputs, tools: DeploymentTools): Promise<RunResult | undefined> {
  if (inputs.problems.length > 0)
    return await refuseRun(MARKETPLACE, inputs.request, { error: inputError(inputs.problems), tools })
  const insecure = findInsecureBase(inputs)
  if (insecure === undefined) return undefined
  const { error, usable } = insecure
  return await refuseRun(MARKETPLACE, { ...inputs.request, bases: usable }, { error, tools })
}

/**
 * Returns the error for an insecure base URL, so that the run is refused before anything is locked or sent. If the base
 * for reports is insecure, `usable` is undefined, and no report is sent.
 */
function findInsecureBase({ request: { bases }, connection }: DeployInputs) {
  if (bases === undefined) return undefined
  const refusals = Object.values(bases).map(base => insecurityOf(base, connection))
  const error = refusals.find(refusal => refusal !== undefined)
  const usable = insecurityOf(bases.deployments, connection) === undefined ? bases : undefined
  return error === undefined ? undefined : { error, usable }
}

function insecurityOf(base: string, connection: Connection): DeployError | undefined {
  try {
    parseRequestUrl(base, connection)
    return undefined
  } catch (error) {
    return toDeployError(error)
  }
}
