import * as core from '@actions/core'
import { createRedactor } from '../core/secrets.ts'
import { isSystemError, toHostError } from '../install/host-errors.ts'
import { finishInterrupted } from '../marketplace/finish-interrupted.ts'
import { createWire } from '../net/wire.ts'
import { annotateError } from './annotations.ts'
import { type DeployInputs, readDeployInputs } from './deploy-inputs.ts'
import { buildDeploySummary } from './deploy-summary.ts'
import { readRunFacts } from './run-facts.ts'
import { createRunnerFiles } from './runner-files.ts'
import { createRunnerLog, type RunnerLog } from './runner-log.ts'
import { wireOptions } from './wire-options.ts'

/**
 * The deploy action's post step: ends what a main step that was killed left on the host. After one that ended by itself
 * there is nothing to do. Sets no outputs, because the runner drops them here. Fails the step when the host could not be
 * brought back; never throws.
 */
export async function deployPost(): Promise<void> {
  if (core.getState('locked') !== 'true') return
  const inputs = readDeployInputs(process.env['GITHUB_WORKSPACE'] ?? process.cwd())
  const redact = createRedactor(inputs.secrets)
  const log = createRunnerLog(redact)
  try {
    await finish(inputs, redact, log)
  } catch (error) {
    log.end()
    annotateError(isSystemError(error) ? toHostError(error, `recovering ${inputs.request.projectRoot}`) : error, redact)
    process.exitCode = 1
  }
}

async function finish(
  { request, connection }: DeployInputs,
  redact: (text: string) => string,
  log: RunnerLog,
): Promise<void> {
  const reportWire = createWire(wireOptions(connection, log))
  const recovered = await finishInterrupted(request, { reportWire, log, redact, runUrl: readRunFacts(process.env).url })
  log.end()
  if (recovered === undefined) return
  await createRunnerFiles(log, redact).addSummary(buildDeploySummary({ ...recovered, plannedSteps: [] }))
}
