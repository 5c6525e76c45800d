import { findInstalled, placeOf, readInstalled } from '../install/host/installed.ts'
import { type Place, usualDirectory } from '../install/host/layout.ts'
import { requireSafeDirectory } from '../install/host/ownership/ownership.ts'
import { findPluginsDirectory } from '../install/host/plugins-directory.ts'
import type { Chooser } from '../install/host/relocation.ts'
import type { ArtifactDeployment } from './deployment.ts'
import type { ReadyArtifactPlan } from './plan.ts'

/** Where an artifact is going to be. */
export interface ChosenPlace {
  readonly place: Place
  /** Who names its directory. */
  readonly chosenBy: Chooser
}

/**
 * Where the operator, or the host's own file, wants what a plan installs. Throws UntouchableHostError where others could
 * write that directory.
 */
export function choosePlace(deployment: ArtifactDeployment, { id }: ReadyArtifactPlan): ChosenPlace {
  const { host, layout, shelf, request, tools } = deployment
  if (shelf === 'extensions') return { place: { shelf, id, directory: usualDirectory(shelf) }, chosenBy: 'operator' }
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  const known = { input: request.pluginsDirectory, recorded: installed && placeOf(installed).directory }
  const { directory, isOperators } = findPluginsDirectory(layout, known, tools.log)
  for (const accepted of requireSafeDirectory(host, directory)) tools.log.warning(accepted)
  return { place: { shelf, id, directory }, chosenBy: isOperators ? 'operator' : 'host' }
}

/** Where it is installed. */
export function installedPlace({ layout, shelf }: Pick<ArtifactDeployment, 'layout' | 'shelf'>, id: string): Place {
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  return installed === undefined ? { shelf, id, directory: usualDirectory(shelf) } : placeOf(installed)
}
