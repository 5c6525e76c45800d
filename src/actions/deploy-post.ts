import * as core from '@actions/core'
import { createRedactor } from '../core/secrets.ts'
import { finishInterrupted } from '../marketplace/finish-interrupted.ts'
import { createWire } from '../net/wire.ts'
import { readDeployInputs } from './deploy-inputs.ts'
import { buildDeploySummary } from './deploy-summary.ts'
import { readRunFacts } from './run-facts.ts'
import { createRunnerLog } from './runner-log.ts'
import { USER_AGENT } from './user-agent.ts'

/**
 * The deploy action's post step: ends what a main step that was killed left on the host. After one that ended by itself
 * there is nothing to do. Sets no outputs, because the runner drops them here.
 */
export async function deployPost(): Promise<void> {
  if (core.getState('locked') !== 'true') return
  const { request, connection, secrets } = readDeployInputs(process.env['GITHUB_WORKSPACE'] ?? process.cwd())
  const redact = createRedactor(secrets)
  const log = createRunnerLog(redact)
  const { allowHttp, ca } = connection
  const reportWire = createWire({
    allowHttp,
    userAgent: USER_AGENT,
    log: line => log.info(line),
    ...(ca === undefined ? {} : { ca }),
  })
  const recovered = await finishInterrupted(request, { reportWire, log, redact, runUrl: readRunFacts(process.env).url })
  log.end()
  if (recovered === undefined || !process.env['GITHUB_STEP_SUMMARY']) return
  await core.summary.addRaw(redact(buildDeploySummary({ ...recovered, plannedSteps: [] }))).write()
}
