import * as core from '@actions/core'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { isSystemError, toHostError } from '../install/files/system-errors.ts'
import type { ClosedDeployment } from '../install/reports/close.ts'
import type { Flows } from '../install/reports/host.ts'
import { ActionStep, failStep, type StepInputs } from './action-step.ts'

/**
 * A post step: recovers what a main step that was killed left on the host. After a main step that ended by itself there
 * is nothing to do. Sets no outputs, because the runner drops them here. Fails the step when the host could not be
 * restored; never throws.
 */
export async function runPostStep<Request extends { projectRoot: string | undefined }>(
  readInputs: () => StepInputs<Request>,
  flows: Flows,
  finish: (request: Request, tools: DeploymentTools) => Promise<ClosedDeployment | undefined>,
): Promise<void> {
  if (core.getState('locked') !== 'true') return
  let step: ActionStep | undefined
  let request: Request | undefined
  try {
    const inputs = readInputs()
    request = inputs.request
    step = new ActionStep(inputs, flows, () => ({}))
    // There is nothing to cancel: a recovery is complete or repeated.
    step.ignoreCancel()
    await step.finishPost(await finish(request, step.tools))
  } catch (error) {
    const what = `recovering ${request?.projectRoot ?? 'the host'}`
    failStep(step, isSystemError(error) ? toHostError(error, what) : error)
  } finally {
    step?.close()
  }
}
