import { isFixed } from '../../core/content/external-source.ts'
import { isSourced, parseManifest } from '../../core/content/manifest.ts'
import { isInstallStep, placeOfInstall } from '../../core/plan/plan-binding.ts'
import { readInstalled } from '../../install/host/installed/host-record.ts'
import { placeOf } from '../../install/host/installed/row-place.ts'
import { placeName, usualDirectory } from '../../install/host/layout.ts'
import { readPreviousInstall } from '../../install/host/previous-install.ts'
import { checkHost, checkShelf } from '../../install/host/readiness.ts'
import { newestProjectVersion } from '../../install/reports/running-version.ts'
import { findIntactTree, type IntactTree } from '../../install/steps/parts/intact-part.ts'
import type { InstalledPart } from '../../install/steps/parts/part.ts'
import type { Deployment } from '../../install/transaction/context.ts'
import { readBundledPlan } from '../bundled-plan.ts'
import type { ProjectDeployment } from '../deployment.ts'
import { readManifest } from '../read-manifest.ts'

const SHELVES = ['plugins', 'extensions'] as const

/** Returns the installed parts of a project, of any version, according to this action's record. */
export function readInstalledParts({ layout }: Pick<Deployment, 'layout'>, projectId: string): InstalledPart[] {
  const rows = readInstalled(layout).filter(row => row.contract === 'project' && row.slug === projectId)
  return rows.map(installed => ({ ...placeOf(installed), installed }))
}

/** Notes the project's version on this host: that of the part installed last, according to this action's record. */
export async function noteInstalledVersion(deployment: ProjectDeployment): Promise<void> {
  const rows = readInstalledParts(deployment, deployment.request.projectId).map(({ installed }) => installed)
  await deployment.record.update({ previous_version: newestProjectVersion(rows) })
}

/**
 * Checks the host as far as possible before the artifact's content is known: the extensions' directory, and the
 * directories of the installed parts. If none of these parts is a plugin, also checks the usual plugins directory.
 * Ignores the plugins directory that the host framework's own file names, because a project does not use it. Throws as
 * `checkHost` does.
 */
export function checkInstalledParts(deployment: ProjectDeployment): void {
  const { layout, request } = deployment
  const installed = readInstalledParts({ layout }, request.projectId)
  const hasPlugins = installed.some(({ shelf }) => shelf === 'plugins')
  for (const shelf of hasPlugins ? (['extensions'] as const) : SHELVES)
    checkShelf(layout, { shelf, directory: usualDirectory(shelf) })
  for (const part of installed) checkHost(deployment, part)
}

/** Returns the project's intact parts that came from this artifact, by name; undefined if there are none. */
export async function findInstalledParts(
  deployment: ProjectDeployment,
  sha256: string,
): Promise<ReadonlyMap<string, IntactTree> | undefined> {
  const { layout, request } = deployment
  const origin = { contract: 'project' as const, slug: request.projectId }
  const found = new Map<string, IntactTree>()
  for (const part of readInstalledParts(deployment, request.projectId)) {
    const installed = await findIntactTree(deployment, readPreviousInstall(layout, part), { origin, sha256 })
    if (installed !== undefined) found.set(placeName(part), installed)
  }
  return found.size === 0 ? undefined : found
}

/**
 * True if `installed` contains every part that the plan in this folder installs, each in the directory that the
 * manifest names. False if any part has a source that may have changed, or if the plan or the manifest cannot be read.
 */
export function isAllInstalled(content: string, installed: ReadonlyMap<string, IntactTree>): boolean {
  try {
    const steps = readBundledPlan(content).steps.filter(isInstallStep)
    const { parts, pluginsDirname } = parseManifest(readManifest(content))
    const isInPlace = (tree: IntactTree | undefined): boolean =>
      tree !== undefined && (tree.place.shelf === 'extensions' || tree.place.directory === pluginsDirname)
    const isAll = steps.every(step => isInPlace(installed.get(placeOfInstall(step))))
    return isAll && parts.filter(isSourced).every(({ source }) => isFixed(source))
  } catch {
    return false
  }
}
