import { realpathSync } from 'node:fs'
import { dirname, join, relative } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { DEFAULT_PLUGINS_DIRECTORY, EXTENSIONS_DIRECTORY, pluginsDirectorySchema } from '../../core/identifiers.ts'
import { listAll, shellWord } from '../../core/text.ts'
import { isSamePath, pathBelow } from '../files/spelling.ts'
import { pathExistsSync } from '../files/walk.ts'
import { installPath, type Layout, type Place, placeName, placeOf, placePath, settingsPath } from './layout.ts'
import { knownDirectories } from './plugins-directory.ts'
import { CHOOSE_ANOTHER, type Chooser, isSameOnHost, KEEP_PREVIOUS, presentRow } from './previous-install.ts'
import { findInstalled, readHostRecord, readInstalled } from './record.ts'
import { isFrom, type Origin, type RemovedRow } from './rows.ts'
import { findRealDirectory, nearestDirectory, realDirectory } from './switchable.ts'

/** The place that a part will have. */
export interface Destination {
  readonly target: Place
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
 * unexpectedly replace content without a record. A service always passes. Throws DeploymentError `unsafe_host` or
 * `place_taken`, and file system errors.
 */
export function verifyDestination(layout: Layout, destination: Destination): void {
  const { target, chosenBy } = destination
  if (target.directory === EXTENSIONS_DIRECTORY) return
  const row = findInstalled(readInstalled(layout), target)
  requireInside(layout, destination)
  if (chosenBy === 'publisher') refuseForeignDirectory(layout, target)
  if (row === undefined || !isSameOnHost(layout, target, placeOf(row))) refuseBelowPart(layout, destination)
  refuseNesting(layout, destination)
  if (row === undefined) refuseOccupied(layout, destination)
}

/**
 * Requires that nothing of these plugins, not even their settings, is in another directory than the one chosen for
 * them, because no run moves them there. Throws DeploymentError `place_taken`, which lists the commands that the
 * operator must run first. After these commands, `presentRow` finds the plugin in its new directory.
 */
export function requireInPlace(layout: Layout, destinations: readonly Destination[]): void {
  const moves = destinations.flatMap(destination => movesTo(layout, destination))
  const [first] = moves
  if (first === undefined) return
  const names = new Set(moves.map(({ target, old }) => `${placePath(target)} in place of ${placePath(old)}`))
  const folders = new Set(moves.map(({ to }) => dirname(to)))
  const commands = [
    ...[...folders].filter(path => !pathExistsSync(path)).map(path => `mkdir -p ${shellWord(path)}`),
    ...moves.map(({ from, to }) => `mv -${pathExistsSync(to) ? 'i' : ''}T ${shellWord(from)} ${shellWord(to)}`),
  ]
  throw new DeploymentError(
    'place_taken',
    `This run would use ${listAll([...names])}, but no run moves what is installed or its settings. Nothing was changed. Either ${KEEP_PREVIOUS[first.chosenBy]}, or run these commands and then run this again: ${commands.join(' && ')}`,
  )
}

/** A directory or settings file that the operator must move. */
interface NeededMove {
  readonly old: Place
  readonly target: Place
  readonly chosenBy: Chooser
  /** Absolute. */
  readonly from: string
  /** Absolute. */
  readonly to: string
}

/** For a removed part that returns, only the settings may have to move: its files are in its snapshots. */
function movesTo(layout: Layout, { target, chosenBy, origin }: Destination): NeededMove[] {
  const { installed, removed } = readHostRecord(layout)
  const returning = findInstalled(removed, target)
  const row = findInstalled(installed, target) ?? (returning && isFrom(returning, origin) ? returning : undefined)
  if (row === undefined) return []
  const old = placeOf(row)
  if (isSameOnHost(layout, old, target)) return []
  const paths = [
    ...('version' in row ? [{ from: installPath(layout, old), to: installPath(layout, target) }] : []),
    { from: settingsPath(layout, old), to: settingsPath(layout, target) },
  ]
  return paths.filter(({ from }) => pathExistsSync(from)).map(path => ({ old, target, chosenBy, ...path }))
}

/** A directory that the operator chose may lead out of the root through a symlink, and so may `plugins`. */
function requireInside(layout: Layout, { target: { directory }, chosenBy }: Destination): void {
  if (directory === DEFAULT_PLUGINS_DIRECTORY) return
  const real = realDirectory(layout, directory)
  const root = realpathSync(layout.root)
  const inside = pathBelow(root, real) ?? relative(root, real)
  if (pluginsDirectorySchema.safeParse(inside).success) return
  if (chosenBy === 'operator' && inside.startsWith('../')) return
  throw new DeploymentError(
    'unsafe_host',
    `The plugins directory ${directory} leads to ${real}, but must lead to a path below project-root, outside extensions and .hub-deploy, that consists of letters, digits, "_", ".", "-" and "/". Nothing was changed. Correct the symlink or ${CHOOSE_ANOTHER[chosenBy]}, and find out who made the symlink.`,
  )
}

/** A publisher must not add plugins to a directory that has another purpose, such as the host framework's source. */
function refuseForeignDirectory(layout: Layout, { directory }: Place): void {
  const path = join(layout.root, directory)
  const found = relative(layout.root, nearestDirectory(path))
  const isKnown = knownDirectories(layout).some(known => isSamePath(join(layout.root, known), path))
  if (found === '' || isKnown || hasMovedPlugin(layout, directory)) return
  throw new DeploymentError(
    'place_taken',
    `This project wants to install plugins in ${directory}, but ${join(layout.root, found)} exists and is not known to be for plugins. Nothing was changed. If it is for plugins, set plugins.directory in integration.yaml to ${directory}; otherwise move it away, or ask the publisher for another plugins_dirname.`,
  )
}

/** True if the operator has moved one of our plugins, or the settings of a removed one, to this directory. */
function hasMovedPlugin(layout: Layout, directory: string): boolean {
  const { installed, removed } = readHostRecord(layout)
  const hasSettings = (row: RemovedRow): boolean => pathExistsSync(settingsPath(layout, { ...placeOf(row), directory }))
  return installed.some(row => presentRow(layout, row, directory) !== row) || removed.some(hasSettings)
}

/**
 * Each subdirectory of a directory of parts, with everything in it, belongs to the part of that name, whichever process
 * created the subdirectory.
 */
function refuseBelowPart(layout: Layout, { target: { directory }, chosenBy }: Destination): void {
  const path = realDirectory(layout, directory)
  for (const shelf of [...knownDirectories(layout), EXTENSIONS_DIRECTORY]) {
    const other = findRealDirectory(layout, shelf)
    const [id] = (other && pathBelow(other, path))?.split('/') ?? []
    if (id === undefined || id === '') continue
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
    const other = realPath(layout, place)
    const isSame = isSamePath(path, other)
    if (isSame && placeName(place) === placeName(target)) continue
    const isBelow = pathBelow(other, path) !== undefined
    if (!isBelow && pathBelow(path, other) === undefined) continue
    throw new DeploymentError(
      'place_taken',
      `${placePath(target)} cannot be installed, because ${placePath(place)} of ${row.slug} is ${isSame ? 'in the same place' : isBelow ? 'a directory around it' : 'a directory inside it'}. Nothing was changed: ${CHOOSE_ANOTHER[chosenBy]}.`,
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

function refuseOccupied(layout: Layout, { target, chosenBy, allowTakeover }: Destination): void {
  const path = installPath(layout, target)
  const isChosen = chosenBy === 'operator' || target.directory === DEFAULT_PLUGINS_DIRECTORY
  if (isChosen || allowTakeover || !pathExistsSync(path)) return
  throw new DeploymentError(
    'place_taken',
    `${placePath(target)} is taken: this action has no record of what is there, and you did not choose this directory. Move ${path} away${REPLACE[chosenBy]}. Nothing was changed.`,
  )
}

function realPath(layout: Layout, { directory, id }: Place): string {
  return join(realDirectory(layout, directory), id)
}
