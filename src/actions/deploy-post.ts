import { finishInterrupted } from '../marketplace/finish-interrupted.ts'
import { readDeployInputs } from './deploy-inputs.ts'
import { runPostStep } from './post-step.ts'

/** The deploy action's post step; see `runPostStep`. */
export async function deployPost(): Promise<void> {
  return runPostStep(readDeployInputs, finishInterrupted)
}
