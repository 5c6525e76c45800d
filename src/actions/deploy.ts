import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import { DeployError, DeploymentError, toDeployError } from '../core/errors.ts'
import { createRedactor } from '../core/secrets.ts'
import { redactReport } from '../install/local-report.ts'
import { deploy as runDeploy } from '../marketplace/deploy.ts'
import type { DeployRequest, DeployResult, DeployTools } from '../marketplace/deploy-request.ts'
import { refuseRequest } from '../marketplace/refuse.ts'
import { parseRequestUrl } from '../net/url-policy.ts'
import { createWire } from '../net/wire.ts'
import { annotateError, annotateFailure } from './annotations.ts'
import { type Connection, type DeployInputs, readDeployInputs } from './deploy-inputs.ts'
import { buildDeployOutputs } from './deploy-outputs.ts'
import { buildDeploySummary } from './deploy-summary.ts'
import { inputError } from './input-reader.ts'
import { readRunFacts } from './run-facts.ts'
import { createRunnerFiles } from './runner-files.ts'
import { createRunnerLog, type RunnerLog } from './runner-log.ts'
import { readStepVariables } from './step-variables.ts'
import { USER_AGENT } from './user-agent.ts'

/** The deploy action: inputs in, one deployment, outputs and summary out. Fails the step unless the outcome is success. */
export async function deploy(): Promise<void> {
  const inputs = readDeployInputs(process.env['GITHUB_WORKSPACE'] ?? process.cwd())
  const redact = createRedactor(inputs.secrets)
  const log = createRunnerLog(redact)
  const cancel = listenForCancel()
  try {
    await report(await run(inputs, redact, log, cancel.signal), redact, log)
  } catch (error) {
    log.end()
    annotateError(error, redact)
    process.exitCode = 1
  } finally {
    cancel.stop()
  }
}

async function run(
  inputs: DeployInputs,
  redact: (text: string) => string,
  log: RunnerLog,
  signal: AbortSignal,
): Promise<DeployResult> {
  const tools = createTools(inputs.connection, redact, log, signal)
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

function createTools(
  connection: Connection,
  redact: (text: string) => string,
  log: RunnerLog,
  signal: AbortSignal,
): DeployTools {
  const { allowHttp, ca } = connection
  const options = {
    allowHttp,
    userAgent: USER_AGENT,
    log: (line: string) => log.info(line),
    ...(ca === undefined ? {} : { ca }),
  }
  return {
    wire: createWire({ ...options, signal }),
    reportWire: createWire(options),
    log,
    signal,
    now: () => new Date(),
    redact,
    run: readRunFacts(process.env),
    deploymentId: randomUUID(),
    temporaryFolder: process.env['RUNNER_TEMP'] || tmpdir(),
    variables: readStepVariables(process.env),
    onLocked(interrupted) {
      const files = createRunnerFiles(log, redact)
      files.saveState('locked', 'true')
      files.setOutputs(buildDeployOutputs({ report: redactReport(interrupted, redact) }))
    },
  }
}

async function report(result: DeployResult, redact: (text: string) => string, log: RunnerLog): Promise<void> {
  log.end()
  const files = createRunnerFiles(log, redact)
  files.saveState('locked', 'false')
  files.setOutputs(buildDeployOutputs(result))
  await files.addSummary(buildDeploySummary(result))
  const { outcome, previous_version: previous, version, error } = result.report
  log.info(`Outcome: ${outcome}${error === null ? `, ${previous ?? 'nothing'} → ${version}` : ''}.`)
  if (outcome === 'success') return
  process.exitCode = 1
  annotateFailure(
    result.error ?? new DeployError('internal_error', `The outcome is ${outcome}.`),
    result.report,
    redact,
  )
}

/** The runner cancels a step with SIGINT and, 7.5 s later, SIGTERM: the first one heard cancels what is under way. */
function listenForCancel(): { signal: AbortSignal; stop(): void } {
  const controller = new AbortController()
  const cancel = (signal: NodeJS.Signals): void =>
    controller.abort(
      new DeploymentError('cancelled', `The run was cancelled (${signal}) before the new version was complete.`),
    )
  process.on('SIGINT', cancel)
  process.on('SIGTERM', cancel)
  return {
    signal: controller.signal,
    stop() {
      process.off('SIGINT', cancel)
      process.off('SIGTERM', cancel)
    },
  }
}
