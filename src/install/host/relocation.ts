import { realpathSync } from 'node:fs'
import { join, relative } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { DEFAULT_PLUGINS_DIRECTORY, EXTENSIONS_DIRECTORY, pluginsDirectorySchema } from '../../core/identifiers.ts'
import { pathExistsSync } from '../files/walk.ts'
import { installPath, isSamePlace, type Layout, type Place, placeName, placeOf, placePath } from './layout.ts'
import { requireMovableData } from './moved-data.ts'
import { knownDirectories } from './plugins-directory.ts'
import { CHOOSE_ANOTHER, type Chooser, KEEP_PREVIOUS, type PreviousInstall } from './previous-install.ts'
import { readInstalled } from './record.ts'
import type { Origin } from './rows.ts'
import { findRealDirectory, nearestDirectory, realDirectory, type SwitchingHost } from './switchable.ts'

/** The new place of a part. */
export interface Destination {
  readonly target: Place
  readonly previous: PreviousInstall
  /**
   * Who chose the directory of `target`. A directory that another program or a publisher chose must not surprise the
   * operator.
   */
  readonly chosenBy: Chooser
  readonly allowTakeover: boolean
  readonly origin: Origin
}

/**
 * Checks that a plugin can be in the directory chosen for it. A directory other than `plugins` must lead neither to
 * `extensions` nor to `.hub-deploy`, and may lead out of the project root only if the operator chose it. A publisher's
 * directory must have no other purpose. The plugin must neither be inside another part nor contain one, and must not
 * unexpectedly replace content without a record. `requireMovableData` must allow the move. A service always passes.
 * Throws DeploymentError `unsafe_host` or `place_taken`, and file system errors.
 */
export async function verifyDestination(host: SwitchingHost, destination: Destination): Promise<void> {
  const { layout } = host
  const { target, previous, chosenBy } = destination
  if (target.directory === EXTENSIONS_DIRECTORY) return
  requireInside(layout, destination)
  if (chosenBy === 'publisher') refuseForeignDirectory(layout, target)
  if (previous.installed === undefined || !isSamePlace(target, previous.place)) refuseBelowPart(layout, destination)
  refuseNesting(layout, destination)
  refuseOccupied(layout, destination)
  await requireMovableData(host, destination)
}

/** A directory that the operator chose may lead out of the root through a symlink, and so may `plugins`. */
function requireInside(layout: Layout, { target: { directory }, chosenBy }: Destination): void {
  if (directory === DEFAULT_PLUGINS_DIRECTORY) return
  const real = realDirectory(layout, directory)
  const inside = relative(realpathSync(layout.root), real)
  if (pluginsDirectorySchema.safeParse(inside).success) return
  if (chosenBy === 'operator' && inside.startsWith('../')) return
  throw new DeploymentError(
    'unsafe_host',
    `The plugins directory ${directory} leads to ${real}, but must lead to a path below project-root, outside extensions and .hub-deploy, that consists of letters, digits, "_", ".", "-" and "/". Nothing was changed. Correct the symlink or ${CHOOSE_ANOTHER[chosenBy]}, and find out who made the symlink.`,
  )
}

/** A publisher must not add plugins to a directory that has another purpose, such as the host framework's source. */
function refuseForeignDirectory(layout: Layout, { directory }: Place): void {
  const found = relative(layout.root, nearestDirectory(join(layout.root, directory)))
  if (found === '' || knownDirectories(layout).includes(directory)) return
  throw new DeploymentError(
    'place_taken',
    `This project wants to install plugins in ${directory}, but ${join(layout.root, found)} exists and is not known to be for plugins. Nothing was changed. If it is for plugins, set plugins.directory in integration.yaml to ${directory}; otherwise move it away, or ask the publisher for another plugins_dirname.`,
  )
}

/**
 * Each subdirectory of a directory of parts, with everything in it, belongs to the part of that name, whichever process
 * created the subdirectory.
 */
function refuseBelowPart(layout: Layout, { target: { directory }, chosenBy }: Destination): void {
  const path = realDirectory(layout, directory)
  for (const shelf of [...knownDirectories(layout), EXTENSIONS_DIRECTORY]) {
    const other = findRealDirectory(layout, shelf)
    if (other === undefined || !isBelow(path, other)) continue
    const [id] = relative(other, path).split('/')
    throw new DeploymentError(
      'place_taken',
      `Nothing can be installed in ${directory}, because ${shelf}/${id} is reserved for a part of that name. Nothing was changed. A plugins directory must not be below ${shelf}: ${CHOOSE_ANOTHER[chosenBy]}.`,
    )
  }
}

/** If a part were inside another one, moving the outer part would also move the inner one. */
function refuseNesting(layout: Layout, { target, chosenBy }: Destination): void {
  const path = realPath(layout, target)
  for (const row of readInstalled(layout)) {
    const place = placeOf(row)
    if (placeName(place) === placeName(target) && isSamePlace(place, target)) continue
    const other = realPath(layout, place)
    if (path !== other && !isBelow(path, other) && !isBelow(other, path)) continue
    throw new DeploymentError(
      'place_taken',
      `${placePath(target)} cannot be installed, because ${placePath(place)} of ${row.slug} is ${path === other ? 'in the same place' : isBelow(path, other) ? 'a directory around it' : 'a directory inside it'}. Nothing was changed: ${CHOOSE_ANOTHER[chosenBy]}.`,
    )
  }
}

/**
 * Advice for the reader of an error, as the end of a clause: how to replace content without a record. An operator needs
 * no such advice, because choosing a directory is enough to replace its content.
 */
const REPLACE: Readonly<Record<Chooser, string>> = {
  operator: '',
  host: '; or, to replace it, set plugins-directory or allow-takeover: true',
  publisher: '; or, to replace it, set allow-takeover: true',
  rollback: `, or ${CHOOSE_ANOTHER.rollback}`,
}

function refuseOccupied(layout: Layout, { target, previous, chosenBy, allowTakeover }: Destination): void {
  const path = installPath(layout, target)
  const isMoving = !isSamePlace(target, previous.place)
  const isChosen = chosenBy === 'operator' || target.directory === DEFAULT_PLUGINS_DIRECTORY
  const isExpected = !isMoving && (previous.installed !== undefined || isChosen || allowTakeover)
  if (isExpected || !pathExistsSync(path)) return
  const why = isMoving
    ? `${placePath(previous.place)} must move there. Move ${path} away, or ${KEEP_PREVIOUS[chosenBy]}`
    : `you did not choose this directory. Move ${path} away${REPLACE[chosenBy]}`
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
