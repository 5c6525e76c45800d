import { z } from 'zod/mini'
import { toDeployError } from '../core/errors.ts'
import { projectIdSchema, versionSchema } from '../core/identifiers.ts'
import { parseSignerKeys } from '../core/trust/signature.ts'
import type { RunResult } from '../install/reports/result.ts'
import { type Incomplete, refuse as refuseRun } from '../install/run/contract.ts'
import type { DeploymentTools } from '../install/run/deployment.ts'
import { parseRequestUrl } from '../net/policy.ts'
import { deployProject } from '../project/deploy.ts'
import { PROJECT, type ProjectRequest } from '../project/deployment.ts'
import { readWorkspace } from '../runner/files.ts'
import { readConnection, readHostInputs } from '../runner/host-inputs.ts'
import { apiKeySchema, baseUrlSchema, booleanSchema, InputReader, idsSchema, inputError } from '../runner/inputs.ts'
import {
  buildDeploymentOutputs,
  failStep,
  outputsOfFailure,
  runPostStep,
  Step,
  type StepInputs,
} from '../runner/step.ts'
import type { SourceInputs } from '../sources/request.ts'
import { SourceSupplier } from '../sources/supplier.ts'
import { FLOWS } from './flows.ts'

export interface ProjectInputs extends StepInputs<Incomplete<ProjectRequest>> {
  readonly sources: SourceInputs
}

/**
 * The project action: reads inputs, runs one deployment, and sets outputs. Fails the step unless everything succeeded.
 * At the end of a successful run that changed the host, calls `onInstalled`.
 */
export async function project(onInstalled: () => void = () => {}): Promise<void> {
  let step: Step | undefined
  try {
    const inputs = readProjectInputs(readWorkspace())
    step = new Step(inputs, outputsOfFailure)
    const tools = step.deploymentTools(inputs.connection, FLOWS, result =>
      buildProjectOutputs(result, inputs.request.projectRoot),
    )
    const refused = await refuseInputs(inputs, tools)
    // If there are no problems, every required input was parsed, and only optional ones are undefined.
    const request = inputs.request as ProjectRequest
    const ended = refused ?? (await deployProject(request, withSources(tools, inputs)))
    step.finishDeployment(ended)
    if (ended.report.outcome === 'success' && ended.report.changed && ended.error === undefined) onInstalled()
  } catch (error) {
    failStep(step, error)
  } finally {
    step?.close()
  }
}

/** Adds the supplier of the parts that a project does not contain. */
function withSources(tools: DeploymentTools, { sources, connection, ...inputs }: ProjectInputs) {
  const { gitTokens, ...marketplace } = sources
  const request = inputs.request as ProjectRequest
  return { ...tools, supplier: new SourceSupplier({ ...request, marketplace, gitTokens, ca: connection.ca }, tools) }
}

/** The project action's post step; see `runPostStep`. */
export async function projectPost(): Promise<void> {
  await runPostStep(() => readProjectInputs(readWorkspace()), FLOWS, PROJECT)
}

/**
 * Reads every input of the project action and collects all problems. Only an input that was left out gets its default.
 */
export function readProjectInputs(workspace: string): ProjectInputs {
  const read = new InputReader('project', workspace)
  const request = {
    devkey: read.requiredSecret('devkey'),
    deploymentCredential: read.requiredSecret('deployment-credential'),
    hubUrl: read.required('hub-url', baseUrlSchema),
    projectId: read.required('project-id', projectIdSchema),
    projectIds: read.optional('project-ids', idsSchema),
    signerKeys: readSignerKeys(read),
    version: read.withDefault('version', versionSchema, 'latest'),
    ...readHostInputs(read),
    dryRun: readDryRun(read),
  }
  return {
    request,
    sources: readSources(read),
    connection: readConnection(read),
    ...read.given(),
  }
}

/** All these inputs are optional: only a project whose manifest names sources of parts needs them. */
function readSources(read: InputReader): SourceInputs {
  return {
    hubUrl: read.optional('sources-hub-url', baseUrlSchema),
    servicesUrl: read.optional('sources-services-url', baseUrlSchema),
    apiKey: read.optionalSecret('sources-api-key', apiKeySchema),
    apiKeys: read.slugKeys('sources-api-keys'),
    signingSecret: read.optionalSecret('sources-signing-secret'),
    gitTokens: read.gitTokens('sources-git-tokens'),
  }
}

/** Returns every output of project/action.yml. An unknown value is empty. */
export function buildProjectOutputs(result: RunResult, projectRoot: string | undefined): Record<string, string> {
  return {
    ...buildDeploymentOutputs(result, projectRoot),
    'project-id': result.report.slug ?? '',
    plugins: JSON.stringify(result.report.plugins ?? []),
  }
}

function readSignerKeys(read: InputReader): ProjectRequest['signerKeys'] | undefined {
  const text = read.required('signer-public-key', z.string())
  try {
    return text === undefined ? undefined : parseSignerKeys(text)
  } catch (error) {
    // The sentence becomes an item in the list of problems.
    const sentence = error instanceof Error ? error.message : String(error)
    read.refuse('signer-public-key', sentence.replace(/^signer-public-key |\.$/g, ''))
    return undefined
  }
}

/**
 * This action has no `dry-run` input, but the runner passes on any value that a workflow sets. An operator who sets
 * `dry-run` expects that nothing changes.
 */
function readDryRun(read: InputReader): boolean | undefined {
  const dryRun = read.withDefault('dry-run', booleanSchema, false)
  if (dryRun === true)
    read.refuse('dry-run', 'is not possible for a project yet, so nothing was done: leave it out to deploy')
  return dryRun
}

/** Ends a run whose inputs cannot be used. Returns undefined if they can. */
async function refuseInputs(inputs: ProjectInputs, tools: DeploymentTools): Promise<RunResult | undefined> {
  const { request, sources, connection, problems } = inputs
  if (problems.length > 0) return await refuseRun(PROJECT, request, { error: inputError(problems), tools })
  try {
    if (request.hubUrl !== undefined) parseRequestUrl(request.hubUrl, connection)
  } catch (error) {
    // An insecure hub gets no report either.
    return await refuseRun(PROJECT, { ...request, hubUrl: undefined }, { error: toDeployError(error), tools })
  }
  try {
    for (const url of [sources.hubUrl, sources.servicesUrl]) if (url !== undefined) parseRequestUrl(url, connection)
    return undefined
  } catch (error) {
    return await refuseRun(PROJECT, request, { error: toDeployError(error), tools })
  }
}
