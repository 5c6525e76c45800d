import { finishInterrupted } from '../marketplace/finish-interrupted.ts'
import { runPostStep } from '../runner/post-step.ts'
import { readDeployInputs } from './deploy-inputs.ts'

/** The deploy action's post step; see `runPostStep`. */
export async function deployPost(): Promise<void> {
  return runPostStep(readDeployInputs, finishInterrupted)
}
