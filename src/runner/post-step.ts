import * as core from '@actions/core'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { isSystemError, toHostError } from '../install/files/system-errors.ts'
import type { ClosedDeployment } from '../install/reports/close.ts'
import { createWire } from '../net/wire.ts'
import { annotateError } from './annotations.ts'
import type { Connection } from './connection.ts'
import { buildDeploySummary } from './deploy-summary.ts'
import { readRunFacts } from './environment.ts'
import { createRunnerFiles } from './runner-files.ts'
import { createRunnerLog } from './runner-log.ts'
import { keepSecrets } from './secret-keeper.ts'
import { wireOptions } from './wire-options.ts'

export interface PostInputs<Request> {
  request: Request & { projectRoot: string | undefined }
  connection: Connection
  secrets: readonly string[]
}

export type PostTools = Pick<DeploymentTools, 'reportWire' | 'log' | 'redact' | 'hide'> & { runUrl: string | null }

/**
 * A post step: ends what a main step that was killed left on the host. After one that ended by itself there is nothing to
 * do. Sets no outputs, because the runner drops them here. Fails the step when the host could not be brought back; never
 * throws.
 */
export async function runPostStep<Request>(
  readInputs: (workspace: string) => PostInputs<Request>,
  finish: (request: Request, tools: PostTools) => Promise<ClosedDeployment | undefined>,
): Promise<void> {
  if (core.getState('locked') !== 'true') return
  const { request, connection, secrets } = readInputs(process.env['GITHUB_WORKSPACE'] ?? process.cwd())
  const { redact, hide } = keepSecrets(secrets)
  const log = createRunnerLog(redact)
  try {
    const reportWire = createWire(wireOptions(connection, log))
    const recovered = await finish(request, { reportWire, log, redact, hide, runUrl: readRunFacts(process.env).url })
    log.end()
    if (recovered === undefined) return
    await createRunnerFiles(log, redact).addSummary(buildDeploySummary({ ...recovered, plannedSteps: [] }))
  } catch (error) {
    log.end()
    annotateError(isSystemError(error) ? toHostError(error, `recovering ${request.projectRoot}`) : error, redact)
    process.exitCode = 1
  }
}
