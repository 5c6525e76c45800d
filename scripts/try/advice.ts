import type { ActionResult } from '../../local/runner.ts'
import { BROKEN_STEP } from './broken-project.ts'
import { howToRaise, type Sources } from './sources.ts'

interface Chosen {
  readonly break: boolean
  readonly root?: string | undefined
}

/** The advice after a step with this result. */
export function adviceAfter({ exitCode, outputs }: ActionResult, sources: Sources, chosen: Chosen): string {
  const { outcome, 'failed-step': failed } = outputs
  if (chosen.break && failed === BROKEN_STEP && outcome !== 'inconsistent') return adviceAfterBreak(sources, chosen)
  if (exitCode !== 0) return 'Correct what the error names, and run the command again.'
  if (chosen.root === undefined)
    return 'Add --root DIR to keep the hub and the host: you can then see an update and a rollback.'
  const raise = `change a file, raise the version (${howToRaise(sources)}) and run the command again`
  if (chosen.break) return `Nothing had to change, so the broken step was skipped. To see a rollback, ${raise}.`
  return `To see an update, ${raise}; to see a rollback, add --break.`
}

/** A broken project needs a new version, because a project contains its plan, and a published version never changes. */
function adviceAfterBreak(sources: Sources, { root }: Chosen): string {
  if (sources.kind !== 'project' || root === undefined)
    return 'Run the command without --break to install your version.'
  return `The broken step is sealed into ${sources.version}. Run the command without --break and with ${howToRaise(sources)} to install your project.`
}
