import { type DeployError, toDeployError } from '../core/errors.ts'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { deploy as runDeploy } from '../marketplace/deploy.ts'
import { refuseRequest } from '../marketplace/refuse.ts'
import type { DeployRequest, DeployResult } from '../marketplace/request.ts'
import { parseRequestUrl } from '../net/url-policy.ts'
import { annotateError } from '../runner/annotations.ts'
import { listenForCancel } from '../runner/cancel.ts'
import type { Connection } from '../runner/connection.ts'
import { createDeploymentTools } from '../runner/deployment-tools.ts'
import { inputError } from '../runner/input-reader.ts'
import { createRunnerLog } from '../runner/runner-log.ts'
import { keepSecrets } from '../runner/secret-keeper.ts'
import { tellResult } from '../runner/tell-result.ts'
import { type DeployInputs, readDeployInputs } from './deploy-inputs.ts'
import { buildDeployOutputs } from './deploy-outputs.ts'

/** The deploy action: inputs in, one deployment, outputs and summary out. Fails the step unless the outcome is success. */
export async function deploy(): Promise<void> {
  const inputs = readDeployInputs(process.env['GITHUB_WORKSPACE'] ?? process.cwd())
  const secrets = keepSecrets(inputs.secrets)
  const log = createRunnerLog(secrets.redact)
  const cancel = listenForCancel()
  try {
    const tools = createDeploymentTools(inputs.connection, {
      secrets,
      log,
      signal: cancel.signal,
      outputsOf: buildDeployOutputs,
    })
    const result = await run(inputs, tools)
    await tellResult(result, buildDeployOutputs(result), secrets.redact, log)
  } catch (error) {
    log.end()
    annotateError(error, secrets.redact)
    process.exitCode = 1
  } finally {
    cancel.stop()
  }
}

async function run(inputs: DeployInputs, tools: DeploymentTools): Promise<DeployResult> {
  if (inputs.problems.length > 0) return refuseRequest(inputs.request, inputError(inputs.problems), tools)
  const insecure = findInsecureBase(inputs)
  if (insecure !== undefined)
    return refuseRequest({ ...inputs.request, bases: insecure.speakable }, insecure.error, tools)
  // Without problems every required input was parsed; what is undefined may be.
  return runDeploy(inputs.request as DeployRequest, tools)
}

/** A base that must not be spoken to refuses the run before anything is locked or sent; the report only if that base is its own. */
function findInsecureBase({ request: { bases }, connection }: DeployInputs) {
  if (bases === undefined) return undefined
  const refusals = Object.values(bases).map(base => insecurityOf(base, connection))
  const error = refusals.find(refusal => refusal !== undefined)
  const speakable = insecurityOf(bases.deployments, connection) === undefined ? bases : undefined
  return error === undefined ? undefined : { error, speakable }
}

function insecurityOf(base: string, connection: Connection): DeployError | undefined {
  try {
    parseRequestUrl(base, connection)
    return undefined
  } catch (error) {
    return toDeployError(error)
  }
}
