import { toDeployError } from '../core/errors.ts'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { parseRequestUrl } from '../net/url-policy.ts'
import { deployProject } from '../project/deploy.ts'
import { refuseProject } from '../project/refuse.ts'
import type { ProjectRequest, ProjectResult } from '../project/request.ts'
import { annotateError } from '../runner/annotations.ts'
import { listenForCancel } from '../runner/cancel.ts'
import { createDeploymentTools } from '../runner/deployment-tools.ts'
import { inputError } from '../runner/input-reader.ts'
import { createRunnerLog } from '../runner/runner-log.ts'
import { keepSecrets } from '../runner/secret-keeper.ts'
import { tellResult } from '../runner/tell-result.ts'
import { type ProjectInputs, readProjectInputs } from './project-inputs.ts'
import { buildProjectOutputs, type ProjectOutcome } from './project-outputs.ts'

/** The project action: inputs in, one deployment, outputs and summary out. Fails the step unless all of it went well. */
export async function project(): Promise<void> {
  const inputs = readProjectInputs(process.env['GITHUB_WORKSPACE'] ?? process.cwd())
  const secrets = keepSecrets(inputs.secrets)
  const log = createRunnerLog(secrets.redact)
  const cancel = listenForCancel()
  const installPath = inputs.request.projectRoot
  const outputsOf = (outcome: ProjectOutcome) => buildProjectOutputs({ ...outcome, installPath })
  try {
    const tools = createDeploymentTools(inputs.connection, { secrets, log, signal: cancel.signal, outputsOf })
    const result = await run(inputs, tools)
    await tellResult(result, outputsOf(result), secrets.redact, log)
  } catch (error) {
    log.end()
    annotateError(error, secrets.redact)
    process.exitCode = 1
  } finally {
    cancel.stop()
  }
}

async function run({ request, connection, problems }: ProjectInputs, tools: DeploymentTools): Promise<ProjectResult> {
  if (problems.length > 0) return refuseProject(request, inputError(problems), tools)
  try {
    if (request.hubUrl !== undefined) parseRequestUrl(request.hubUrl, connection)
  } catch (error) {
    // A hub that must not be spoken to is not told either.
    return refuseProject({ ...request, hubUrl: undefined }, toDeployError(error), tools)
  }
  // Without problems every required input was parsed; what is undefined may be.
  return deployProject(request as ProjectRequest, tools)
}
