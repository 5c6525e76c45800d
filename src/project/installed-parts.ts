import { readInstalled, shelfOf } from '../install/host/installed.ts'
import { checkHost, checkShelf } from '../install/host/readiness.ts'
import type { InstalledPart } from '../install/steps/part.ts'
import type { Deployment } from '../install/transaction/context.ts'
import type { ProjectDeployment } from './deployment.ts'

/** The parts of a project that this host has, by our own record, each of any version. */
export function readInstalledParts({ layout }: Pick<Deployment, 'layout'>, projectId: string): InstalledPart[] {
  const rows = readInstalled(layout).filter(row => row.contract === 'project' && row.slug === projectId)
  return rows.map(installed => ({ shelf: shelfOf(installed.kind), id: installed.id, installed }))
}

/** Records which version of the project this host runs by our own record: that of the part installed last. */
export async function noteInstalledVersion(deployment: ProjectDeployment): Promise<void> {
  const rows = readInstalledParts(deployment, deployment.request.projectId).map(({ installed }) => installed)
  const newest = rows.toSorted((a, b) => (a.installed_at ?? '').localeCompare(b.installed_at ?? '')).at(-1)
  await deployment.record.update({ previous_version: newest?.project_version ?? null })
}

/**
 * Checks what can be checked of the host before the artifact's content is known: both shelves, and the installed parts.
 * Throws DeploymentError `host_not_writable`, `unsafe_host` or `disk_full`.
 */
export function checkInstalledParts(deployment: ProjectDeployment): void {
  const { layout, request } = deployment
  for (const shelf of ['plugins', 'extensions'] as const) checkShelf(layout, shelf)
  for (const part of readInstalledParts({ layout }, request.projectId)) checkHost(deployment, part)
}
