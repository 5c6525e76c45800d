import { readInstalled } from '../install/installed.ts'
import { readPrevious } from '../install/previous.ts'
import type { Previous } from '../install/steps/step-context.ts'
import type { Run } from './run.ts'

/** Notes what is recorded of this slug before the plan says where it goes, so that also a refused run can tell it. */
export async function noteInstalledVersion({ layout, request, record }: Run): Promise<void> {
  const rows = await readInstalled(layout)
  const installed = rows.find(
    ({ contract, kind, slug }) => contract === 'marketplace' && kind === request.kind && slug === request.slug,
  )
  await record.update({ previous_version: installed?.version ?? null })
}

/** What a deployment replaces; noted for its report. */
export async function notePrevious(run: Run, id: string): Promise<Previous> {
  const previous = await readPrevious(run.layout, { shelf: run.shelf, id })
  await run.record.update({ previous_version: previous.version })
  return previous
}
