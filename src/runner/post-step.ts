import * as core from '@actions/core'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { checkRestored } from '../install/deployment/handover.ts'
import { recoverMainStep } from '../install/deployment/recovery/recover-host.ts'
import { isSystemError, toHostError } from '../install/files/system-errors.ts'
import type { Flows, Host } from '../install/reports/host.ts'
import type { HostRequest } from '../install/transaction/context.ts'
import { ActionStep, ENDED_STATE, failStep, HANDOVER_STATE, RUN_STATE, type StepInputs } from './action-step.ts'

/** The inputs that a post step itself needs. */
type LockedRequest = { [K in 'projectRoot' | 'lockTimeoutMs']: HostRequest[K] | undefined }

/** Builds the host of a contract from the inputs that could be read. Returns undefined if they are not enough. */
export type HostOf<Request> = (request: Request, tools: DeploymentTools) => Host | undefined

/**
 * Runs a post step. If the main step had the host, and was killed or left its journal, recovers the host. If a
 * cancelled main step restored a version, checks the health of that version. After a main step that never had the host,
 * there is nothing to do. Sets no outputs, because the runner drops the outputs of a post step. Fails the step if the host could
 * not be recovered or checked; never throws.
 */
export async function runPostStep<Request extends LockedRequest>(
  readInputs: () => StepInputs<Request>,
  flows: Flows,
  hostOf: HostOf<Request>,
): Promise<void> {
  if (core.getState(RUN_STATE) === '') return
  const handover = core.getState(HANDOVER_STATE)
  const hasEnded = core.getState(ENDED_STATE) === 'true'
  let step: ActionStep | undefined
  let request: Request | undefined
  try {
    const inputs = readInputs()
    request = inputs.request
    step = new ActionStep(inputs, flows, () => ({}))
    // A cancel changes nothing here: a recovery is completed now or repeated later.
    step.ignoreCancel()
    const host = hostOf(request, step.tools)
    if (host === undefined) return
    step.finishRecovery(await recoverMainStep(host, { lockTimeoutMs: request.lockTimeoutMs, hasEnded }))
    if (handover !== '') step.finishCheck(await checkRestored(host, handover))
  } catch (error) {
    const doing = `recovering or checking ${request?.projectRoot ?? 'the host'}`
    failStep(step, isSystemError(error) ? toHostError(error, doing) : error)
  } finally {
    step?.close()
  }
}
