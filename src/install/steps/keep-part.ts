import { placeName, placePath } from '../host/layout.ts'
import { addedInWords } from '../host/trees/drift-check.ts'
import type { IntactPart } from './parts/part.ts'
import type { StepContext } from './step-context.ts'
import type { StepResult } from './step-entry.ts'

/** Keeps an intact part in its place. */
export async function keepPart({ deployment, results }: StepContext, part: IntactPart): Promise<StepResult> {
  results.set(placeName(part), { tree: part.intact })
  const { added = [], uncounted } = (await deployment.drift.of(part)) ?? {}
  const more = added.length === 0 ? '' : `; ${addedInWords(added.length, uncounted)}`
  return {
    status: 'unchanged',
    did: 'unchanged',
    story: `${placePath(part)} is already ${part.version} with these files${more}`,
  }
}
