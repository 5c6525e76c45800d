import { readInstalledParts } from './installed-parts.ts'
import type { Run } from './run.ts'

/** Notes which version of the project this host runs by our own record: that of the part that was installed last. */
export async function noteInstalledVersion({ layout, request, record }: Run): Promise<void> {
  const rows = readInstalledParts(layout, request.projectId).map(({ installed }) => installed)
  const newest = rows.toSorted((a, b) => (a.installed_at ?? '').localeCompare(b.installed_at ?? '')).at(-1)
  await record.update({ previous_version: newest?.project_version ?? null })
}
