import { type InstalledRow, readInstalled } from '../install/host/installed.ts'
import type { PreviousInstall } from '../install/host/previous-install.ts'
import { readPreviousInstall, warnOfTakeover } from '../install/host/previous-install.ts'
import type { Run } from './run.ts'

/** Notes what is recorded of this slug before the plan says where it goes, so that also a refused run can tell it. */
export async function noteInstalledVersion({ layout, request, record }: Run): Promise<void> {
  const rows = readInstalled(layout)
  const installed = rows.find(
    ({ contract, kind, slug }) => contract === 'marketplace' && kind === request.kind && slug === request.slug,
  )
  await record.update({ previous_version: installed?.version ?? null })
}

/** What a deployment replaces; noted for its report. */
export async function notePrevious(run: Run, id: string): Promise<PreviousInstall> {
  const previous = readPreviousInstall(run.layout, { shelf: run.shelf, id })
  warnOfTakeover(previous, originOf(run), run.tools.log)
  await run.record.update({ previous_version: previous.version })
  return previous
}

/** What `installed.json` says of everything that this run installs. */
export function originOf({ request }: Run): Pick<InstalledRow, 'contract' | 'slug' | 'project_version'> {
  return { contract: 'marketplace', slug: request.slug, project_version: null }
}
