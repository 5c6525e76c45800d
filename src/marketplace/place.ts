import type { Chooser } from '../install/host/chooser.ts'
import { findInstalled, readInstalled } from '../install/host/installed/host-record.ts'
import { placeOf } from '../install/host/installed/row-place.ts'
import { type Layout, type Place, usualDirectory } from '../install/host/layout.ts'
import { requireSafeDestination } from '../install/host/ownership/ownership.ts'
import { findPluginsDirectory } from '../install/host/plugins-directory.ts'
import { findRealDirectory } from '../install/host/switchable.ts'
import type { ArtifactDeployment } from './deployment.ts'
import type { ReadyArtifactPlan } from './plan.ts'

/** The place for an artifact. */
export interface ChosenPlace {
  readonly place: Place
  /** The party that chooses the plugins directory. */
  readonly chosenBy: Chooser
}

/**
 * Returns the place for the artifact of a plan; for a plugin, in the directory that `findPluginsDirectory` finds.
 * Throws as `readInstalled` and `requireSafeDestination` do.
 */
export function choosePlace(deployment: ArtifactDeployment, { id }: ReadyArtifactPlan): ChosenPlace {
  const { host, layout, shelf, request, tools } = deployment
  if (shelf === 'extensions') return { place: { shelf, id, directory: usualDirectory(shelf) }, chosenBy: 'operator' }
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  const known = { input: request.pluginsDirectory, recorded: installed && placeOf(installed).directory }
  const found = findPluginsDirectory(layout, known, tools.log)
  const { isOperators } = found
  const directory =
    known.recorded !== undefined && isSame(layout, found, known.recorded) ? known.recorded : found.directory
  for (const accepted of requireSafeDestination(host, directory)) tools.log.warning(accepted)
  return { place: { shelf, id, directory }, chosenBy: isOperators ? 'operator' : 'host' }
}

/** True if both paths lead to the same directory, for example by a symlink. In that case, nothing has to be moved. */
function isSame(layout: Layout, { directory }: { readonly directory: string }, recorded: string): boolean {
  const real = findRealDirectory(layout, directory)
  return real !== undefined && real === findRealDirectory(layout, recorded)
}

/** Returns the place in which a part is installed, or its usual place if it is not installed. */
export function installedPlace({ layout, shelf }: Pick<ArtifactDeployment, 'layout' | 'shelf'>, id: string): Place {
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  return installed === undefined ? { shelf, id, directory: usualDirectory(shelf) } : placeOf(installed)
}
