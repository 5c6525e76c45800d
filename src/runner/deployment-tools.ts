import { randomUUID } from 'node:crypto'
import { tmpdir } from 'node:os'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import type { LocalReport } from '../install/reports/local-report.ts'
import { redactReport } from '../install/reports/local-report.ts'
import { createWire } from '../net/wire.ts'
import type { Connection } from './connection.ts'
import { readRunFacts } from './environment.ts'
import { createRunnerFiles } from './runner-files.ts'
import type { RunnerLog } from './runner-log.ts'
import type { SecretKeeper } from './secret-keeper.ts'
import { readStepVariables } from './step-variables.ts'
import { wireOptions } from './wire-options.ts'

export interface DeployOutcome {
  report: LocalReport
  reportPath?: string | undefined
  installPath?: string | undefined
}

export interface ActionParts {
  secrets: SecretKeeper
  log: RunnerLog
  signal: AbortSignal
  /** The action's outputs for what is known of a run. */
  outputsOf(outcome: DeployOutcome): Record<string, string>
}

/** What a deployment works with when the runner runs it. */
export function createDeploymentTools(connection: Connection, parts: ActionParts): DeploymentTools {
  const { secrets, log, signal, outputsOf } = parts
  const options = wireOptions(connection, log)
  return {
    wire: createWire({ ...options, signal }),
    reportWire: createWire(options),
    log,
    signal,
    now: () => new Date(),
    redact: secrets.redact,
    hide: secrets.hide,
    run: readRunFacts(process.env),
    deploymentId: randomUUID(),
    temporaryFolder: process.env['RUNNER_TEMP'] || tmpdir(),
    variables: readStepVariables(process.env),
    onLocked(interrupted) {
      const files = createRunnerFiles(log, secrets.redact)
      files.saveState('locked', 'true')
      files.setOutputs(outputsOf({ report: redactReport(interrupted, secrets.redact) }))
    },
    onCancelledEnd: closed => createRunnerFiles(log, secrets.redact).setOutputs(outputsOf(closed)),
  }
}
