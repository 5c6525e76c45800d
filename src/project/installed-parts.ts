import { readInstalled, shelfOf } from '../install/host/installed.ts'
import type { Layout } from '../install/host/layout.ts'
import type { InstalledThing } from '../install/steps/step-context.ts'

/** The parts that this host has of a project, by our own record, whichever version each came with. */
export function readInstalledParts(layout: Layout, projectId: string): InstalledThing[] {
  const rows = readInstalled(layout).filter(row => row.contract === 'project' && row.slug === projectId)
  return rows.map(installed => ({ shelf: shelfOf(installed.kind), id: installed.id, installed }))
}
