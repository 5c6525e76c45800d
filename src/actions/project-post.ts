import { finishInterrupted } from '../project/finish-interrupted.ts'
import { runPostStep } from '../runner/post-step.ts'
import { readProjectInputs } from './project-inputs.ts'

/** The project action's post step; see `runPostStep`. */
export async function projectPost(): Promise<void> {
  return runPostStep(readProjectInputs, finishInterrupted)
}
