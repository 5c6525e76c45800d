import { join } from 'node:path'
import { DEFAULT_PLUGINS_DIRECTORY, EXTENSIONS_DIRECTORY } from '../../core/identifiers.ts'

/** One of the two kinds of parts. */
export type Shelf = 'plugins' | 'extensions'

/** Identifies a plugin or extension. A host has each part at most once, wherever the part is installed. */
export interface PartName {
  readonly shelf: Shelf
  readonly id: string
}

/** The place of one plugin or extension. */
export interface Place extends PartName {
  /** The directory that contains the part, relative to the project root. */
  readonly directory: string
}

/**
 * A project root, and the paths below it that this action uses, all absolute. Everything under `.hub-deploy/` is ours
 * alone.
 */
export interface Layout {
  readonly root: string
  readonly own: string
  readonly lock: string
  readonly journal: string
  readonly installed: string
  readonly staging: string
  /** Whatever is here, nobody needs. */
  readonly trash: string
  readonly snapshots: string
  readonly trees: string
  readonly reports: string
  readonly outbox: string
}

export function layoutOf(projectRoot: string): Layout {
  const own = join(projectRoot, '.hub-deploy')
  return {
    root: projectRoot,
    own,
    lock: join(own, 'lock'),
    journal: join(own, 'journal.jsonl'),
    installed: join(own, 'installed.json'),
    staging: join(own, 'staging'),
    trash: join(own, 'trash'),
    snapshots: join(own, 'snapshots'),
    trees: join(own, 'trees'),
    reports: join(own, 'reports'),
    outbox: join(own, 'outbox'),
  }
}

/** Names a part, wherever it is installed: `<shelf>/<id>`. */
export function placeName({ shelf, id }: PartName): string {
  return `${shelf}/${id}`
}

/** Returns the path of a place, relative to the project root. */
export function placePath({ directory, id }: Place): string {
  return `${directory}/${id}`
}

/** Returns the place with this path, relative to the project root. */
export function placeAt(path: string): Place {
  const end = path.lastIndexOf('/')
  const [directory, id] = [path.slice(0, end), path.slice(end + 1)]
  return { shelf: directory === EXTENSIONS_DIRECTORY ? 'extensions' : 'plugins', id, directory }
}

/** The default directory of a shelf. */
export function usualDirectory(shelf: Shelf): string {
  return shelf === 'plugins' ? DEFAULT_PLUGINS_DIRECTORY : EXTENSIONS_DIRECTORY
}

export function isSamePlace(a: Place, b: Place): boolean {
  return placePath(a) === placePath(b)
}

export function installPath(layout: Layout, place: Place): string {
  return join(layout.root, placePath(place))
}

/**
 * The path of the host's own settings for a place. The settings are next to the installed directory, so no deployment
 * replaces them.
 */
export function settingsPath(layout: Layout, place: Place): string {
  return `${installPath(layout, place)}.env`
}

export function snapshotsPath(layout: Layout, { shelf, id }: PartName): string {
  return join(layout.snapshots, shelf, id)
}

/** The folder for files that were in the way of a version, which an operator may want; relative to the project root. */
export const SET_ASIDE = '.hub-deploy/snapshots/set-aside'

export function stagingPath(layout: Layout, deploymentId: string): string {
  return join(layout.staging, deploymentId)
}

export function treeRecordPath({ trees }: Layout, record: string): string {
  return join(trees, `${record}.tree`)
}

/** A directory that is never empty: the target of renames that must fail. */
export function renameProbePath({ own }: Layout): string {
  return join(own, 'rename-probe')
}

export function auditPath(layout: Layout): string {
  return join(layout.own, 'audit.jsonl')
}

/** The greatest number in front of a name. Only a planted name has it; after that, numbers repeat. */
const MAX_NUMBER = 999_999_999_999_999

/**
 * Returns the number of the next name in a folder with names such as `7-rest`. The numbers say in which order the names
 * were created, which times in names do not say after the host's clock has jumped.
 */
export function nextNumber(names: readonly string[]): number {
  const highest = names.reduce((highest, name) => Math.max(highest, numberOf(name)), 0)
  return Math.min(highest + 1, MAX_NUMBER)
}

/** Returns names in the order of their numbers. Names with the same number are in the order of their characters. */
export function byNumber(names: readonly string[]): string[] {
  return names.toSorted().toSorted((a, b) => numberOf(a) - numberOf(b))
}

/** Returns 0 for a name without a number. */
export function numberOf(name: string): number {
  return Number(/^\d{1,15}(?=-)/.exec(name)?.[0] ?? 0)
}

export function reservePath(layout: Layout): string {
  return join(layout.own, 'reserve')
}

/** The fields that name the part of a row. */
interface KindAndId {
  readonly kind: 'plugin' | 'service'
  readonly id: string
}

/** The directory of plugins that contains a row's part; absent for the usual directory. */
interface InDirectory {
  readonly directory?: string
}

/** Returns the part that a row is about. */
export function partOf({ kind, id }: KindAndId): PartName {
  return { shelf: shelfOf(kind), id }
}

/** Returns the place of a row's plugin or service. */
export function placeOf(row: KindAndId & InDirectory): Place {
  const part = partOf(row)
  return { ...part, directory: row.directory ?? usualDirectory(part.shelf) }
}

/** Returns the field in which a row records a directory of plugins, or no field for the usual directory. */
export function directoryIn({ shelf, directory }: Place): InDirectory {
  return directory === usualDirectory(shelf) ? {} : { directory }
}

/** Returns a row as it is for another place of its part. */
export function rowIn<Row extends InDirectory>(
  { directory: _, ...row }: Row,
  place: Place,
): Omit<Row, 'directory'> & InDirectory {
  return { ...row, ...directoryIn(place) }
}

export function shelfOf(kind: 'plugin' | 'service'): Shelf {
  return kind === 'plugin' ? 'plugins' : 'extensions'
}

/** Returns the name of the part that a row is about. */
export function nameOf(row: KindAndId): string {
  return placeName(partOf(row))
}
