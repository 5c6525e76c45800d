import type { DeploymentTools } from '../install/deployment/deployment.ts'
import type { EndedDeployment } from '../install/deployment/run.ts'
import type { Flows } from '../install/reports/host.ts'
import { ActionStep, failStep, type KnownResult, type StepInputs } from './action-step.ts'
import { runOrFail } from './unsettled.ts'

/** One action's main step: what it reads, what it runs, and what it puts out. */
export interface MainStep<Request> {
  readonly flows: Flows
  readInputs(): StepInputs<Request>
  run(inputs: StepInputs<Request>, tools: DeploymentTools): Promise<EndedDeployment>
  outputsOf(result: KnownResult, request: Request): Record<string, string>
}

/**
 * Reads inputs, runs one deployment, sets outputs. Fails the step unless the outcome is success. A step that could not
 * begin, or that has nothing left to wait for before the deployment has ended, fails with `internal_error`.
 */
export async function runMainStep<Request>(main: MainStep<Request>): Promise<void> {
  let step: ActionStep | undefined
  const act = async (): Promise<void> => {
    const inputs = main.readInputs()
    step = new ActionStep(inputs, main.flows, result => main.outputsOf(result, inputs.request))
    await step.finish(await main.run(inputs, step.tools))
  }
  try {
    await runOrFail(act, () => step?.failUnsettled())
  } catch (error) {
    failStep(step, error)
  } finally {
    step?.close()
  }
}
