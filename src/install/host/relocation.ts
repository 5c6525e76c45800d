import { realpathSync } from 'node:fs'
import { join, relative } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import {
  DEFAULT_PLUGINS_DIRECTORY,
  EXTENSIONS_DIRECTORY,
  pluginsDirectorySchema,
} from '../../core/plugins-directory.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { readInstalled } from './installed/host-record.ts'
import { placeOf } from './installed/row-place.ts'
import type { Origin } from './installed/rows.ts'
import { installPath, isSamePlace, type Layout, type Place, placeName, placePath } from './layout.ts'
import { requireMovableData } from './moved-data.ts'
import { knownDirectories } from './plugins-directory.ts'
import type { PreviousInstall } from './previous-install.ts'
import { findRealDirectory, nearestDirectory, realDirectory, type SwitchingHost } from './switchable.ts'

/** The operator for this run, the host's own file (or our record of it), or the publisher of a project. */
export type Chooser = 'operator' | 'host' | 'publisher'

/** The new place of a part. */
export interface Destination {
  readonly target: Place
  readonly previous: PreviousInstall
  /**
   * The source of its directory's name: the choice of another program or a publisher must not surprise the operator.
   */
  readonly chosenBy: Chooser
  readonly allowTakeover: boolean
  readonly origin: Origin
}

/**
 * Checks that a part can be in the directory chosen for it: that the directory is really below the project root; that
 * the part is in no other part and contains none; that it replaces nothing that was not installed there; and that no
 * data of this host is lost in the move. Throws DeploymentError `unsafe_host` or `place_taken`.
 */
export async function verifyDestination(host: SwitchingHost, destination: Destination): Promise<void> {
  const { layout } = host
  const { target, previous, chosenBy } = destination
  if (target.directory === EXTENSIONS_DIRECTORY) return
  requireInside(layout, destination)
  if (chosenBy === 'publisher') refuseForeignDirectory(layout, target)
  if (previous.installed === undefined || !isSamePlace(target, previous.place)) refuseBelowPart(layout, target)
  refuseNesting(layout, target)
  refuseOccupied(layout, destination)
  await requireMovableData(host, { ...destination, isOperators: chosenBy === 'operator' })
}

/** Symlinks of the operator may lead out of the root, as they always could in place of `plugins`. */
function requireInside(layout: Layout, { target: { directory }, chosenBy }: Destination): void {
  if (directory === DEFAULT_PLUGINS_DIRECTORY) return
  const real = realDirectory(layout, directory)
  const inside = relative(realpathSync(layout.root), real)
  if (pluginsDirectorySchema.safeParse(inside).success) return
  if (chosenBy === 'operator' && inside.startsWith('../')) return
  throw new DeploymentError(
    'unsafe_host',
    `The plugins directory ${directory} leads to ${real}, which is not a directory for plugins below project-root: nothing was changed. Find out who made the symlink, and correct it or plugins.directory in integration.yaml.`,
  )
}

/** A publisher must not add to a directory for another purpose, such as the source of the host framework. */
function refuseForeignDirectory(layout: Layout, { directory }: Place): void {
  const found = relative(layout.root, nearestDirectory(join(layout.root, directory)))
  if (found === '' || knownDirectories(layout).includes(directory)) return
  throw new DeploymentError(
    'place_taken',
    `This project wants to install plugins in ${directory}, but ${join(layout.root, found)} exists, and nothing says that it is for plugins: nothing was changed. If it is, set plugins.directory in integration.yaml to ${directory}; otherwise move it away, or ask the publisher for another plugins_dirname.`,
  )
}

/** Everything below a directory of plugins is in a plugin, whatever process put it there. */
function refuseBelowPart(layout: Layout, { directory }: Place): void {
  const path = realDirectory(layout, directory)
  for (const shelf of [...knownDirectories(layout), EXTENSIONS_DIRECTORY]) {
    const other = findRealDirectory(layout, shelf)
    if (other === undefined || !isBelow(path, other)) continue
    const [id] = relative(other, path).split('/')
    throw new DeploymentError(
      'place_taken',
      `Nothing can be installed in ${directory}, because ${shelf}/${id} is the place of another part: nothing was changed. Choose a plugins directory that is not below ${shelf}.`,
    )
  }
}

/** A part that is in another one, or contains it, would be moved away with it. */
function refuseNesting(layout: Layout, target: Place): void {
  const path = realPath(layout, target)
  for (const row of readInstalled(layout)) {
    const place = placeOf(row)
    if (placeName(place) === placeName(target) && isSamePlace(place, target)) continue
    const other = realPath(layout, place)
    if (path !== other && !isBelow(path, other) && !isBelow(other, path)) continue
    throw new DeploymentError(
      'place_taken',
      `${placePath(target)} cannot be installed, because ${placePath(place)} of ${row.slug} is ${path === other ? 'there' : isBelow(path, other) ? 'around it' : 'in it'}: nothing was changed. Choose another plugins directory.`,
    )
  }
}

function refuseOccupied(layout: Layout, { target, previous, chosenBy, allowTakeover }: Destination): void {
  const path = installPath(layout, target)
  const isMoving = !isSamePlace(target, previous.place)
  const isChosen = chosenBy === 'operator' || target.directory === DEFAULT_PLUGINS_DIRECTORY
  const isExpected = !isMoving && (previous.installed !== undefined || isChosen || allowTakeover)
  if (isExpected || !pathExistsSync(path)) return
  const why = isMoving
    ? `${placePath(previous.place)} is to be moved there. Move ${path} away, or keep the plugins directory`
    : `this host's integration.yaml, and not the operator, names its directory. Move ${path} away, set plugins-directory, or set allow-takeover: true if you mean to replace it`
  throw new DeploymentError(
    'place_taken',
    `${placePath(target)} is taken: this action has no record of what is there, and ${why}. Nothing was changed.`,
  )
}

function isBelow(path: string, other: string): boolean {
  return path.startsWith(`${other}/`)
}

function realPath(layout: Layout, { directory, id }: Place): string {
  return join(realDirectory(layout, directory), id)
}
