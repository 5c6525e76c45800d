import { DeployError } from '../core/errors.ts'
import type { EndedDeployment } from '../install/deployment/run.ts'
import { annotateFailure } from './annotations.ts'
import { buildDeploySummary, type SummaryFacts } from './deploy-summary.ts'
import { createRunnerFiles } from './runner-files.ts'
import type { RunnerLog } from './runner-log.ts'

/** Hands a deployment's result to the runner: outputs, summary, annotation. Fails the step unless everything went well. */
export async function tellResult(
  result: EndedDeployment & Pick<SummaryFacts, 'plannedSteps'>,
  outputs: Readonly<Record<string, string>>,
  redact: (text: string) => string,
  log: RunnerLog,
): Promise<void> {
  log.end()
  const files = createRunnerFiles(log, redact)
  files.saveState('locked', 'false')
  files.setOutputs(outputs)
  await files.addSummary(buildDeploySummary(result))
  const { outcome, previous_version: previous, version, error } = result.report
  log.info(`Outcome: ${outcome}${error === null ? `, ${previous ?? 'nothing'} → ${version}` : ''}.`)
  if (outcome !== 'success' || result.error !== undefined) {
    process.exitCode = 1
    const error = result.error ?? new DeployError('internal_error', `The outcome is ${outcome}.`)
    annotateFailure(error, result.report, redact)
  }
  if (result.unwritten !== undefined) log.warning(result.unwritten)
}
