import { hash } from 'node:crypto'
import { constants, lstatSync, openSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod/mini'
import { type PluginYaml, parsePluginYaml } from '../../core/content/plugin-yaml.ts'
import { PLUGIN_YAML_LIMITS } from '../../core/identifiers.ts'
import { type Log, monotonicMs } from '../../core/log.ts'
import { countInWords } from '../../core/text.ts'
import { comparePaths } from '../../core/trust/tree-digest.ts'
import { toHostError } from '../files/errors.ts'
import { closeQuietlySync, readSmallFileSync } from '../files/open.ts'
import { FileDigester, TimeSlice } from '../files/time-slice.ts'
import { describeItemSync, type FoundItem, isAbsent, type TreeItem } from '../files/walk.ts'
import {
  installPath,
  type Layout,
  type PartName,
  type Place,
  placeName,
  placePath,
  treeRecordPath,
} from '../host/layout.ts'
import { findInstalled, readInstalled } from '../host/record.ts'
import type { InstalledRow, SnapshotRow } from '../host/rows.ts'
import { readStateFileSync } from '../host/state-file.ts'
import { compareTree, isAsRecorded, type ScannedTree, type TreeDifference, TreeStamps } from './compare.ts'
import {
  asLine,
  type FindRecorded,
  openTreeRecord,
  type RecordedItem,
  type RecordedLine,
  readRecordLines,
  readTreeRecord,
  type TreeIdentity,
  TreeRecordDamage,
} from './record.ts'

/** Where this host's records are, and the log that names a damaged record. */
interface RecordFolder {
  readonly layout: Layout
  readonly log: Log
}

/** An installed tree, in its present place. */
interface InstalledTree extends Place {
  readonly keepPaths: readonly string[]
  /** The path that the tree was moved to, if it was moved. */
  readonly root?: string | undefined
  readonly onStamp?: ScannedTree['onStamp']
}

/**
 * Returns the differences between the files of an installed plugin or extension and those that were installed. Leaves
 * out keep-paths and unrecorded files in bytecode caches. Apart from these, three empty lists mean that every file and
 * symlink has the recorded bytes, mode and target, and that there are no other files. A file that was touched, or
 * replaced by a copy, counts as unchanged.
 *
 * Undefined means that the differences are not known: nothing is recorded, or, after a warning, the record or the tree
 * cannot be read. In that case, do not treat the tree as intact. Throws only the signal's reason, once the signal is
 * aborted. Does not read a file whose inode and times show that it is unchanged.
 */
export async function findDrift(
  folder: RecordFolder,
  tree: InstalledTree,
  signal?: AbortSignal,
): Promise<TreeDifference | undefined> {
  return await compareInstalled(folder, tree, { signal })
}

interface Comparison {
  readonly signal?: AbortSignal | undefined
  /** True to read every file, because inodes and times are not proof enough (after a crash, for example). */
  readonly byContent?: boolean
}

/** Does the same as `findDrift`, but reads every file if `byContent` is set. */
export async function compareInstalled(
  folder: RecordFolder,
  tree: InstalledTree,
  { signal, byContent = false }: Comparison,
): Promise<TreeDifference | undefined> {
  const { layout, log } = folder
  let row: InstalledRow | undefined
  try {
    row = findInstalled(readInstalled(layout), tree)
    if (row === undefined) return undefined
    const hostTree = {
      root: tree.root ?? installPath(layout, tree),
      keepPaths: tree.keepPaths,
      onStamp: tree.onStamp,
      identity: row,
    }
    const difference = await compareRecorded(layout, hostTree, { signal, byContent })
    return difference && withoutSettings(layout, { ...hostTree, difference })
  } catch (error) {
    signal?.throwIfAborted()
    log.warning(`${placePath(tree)} is not compared with what was installed. ${whyNotCompared(error, layout, row)}`)
    return undefined
  }
}

/** Leaves out the settings that the host framework injects into a plugin: an added file, but the host's own. */
function withoutSettings(
  layout: Layout,
  { root, identity, difference }: { root: string; identity: InstalledRow; difference: TreeDifference },
): TreeDifference {
  if (difference.added.length === 0 || identity.kind !== 'plugin') return difference
  const find = openTreeRecord(layout, identity)
  const envFile = find && tryOrUndefined(() => readRecordedYaml(root, find))?.envFile
  return envFile === undefined
    ? difference
    : { ...difference, added: difference.added.filter(path => path !== envFile) }
}

export const PLUGIN_YAML = 'plugin.yaml'

/**
 * Reads the plugin.yaml of an installed plugin. Returns undefined unless the bytes read here are those of the record.
 * Throws as `parsePluginYaml` does, and file system errors.
 */
export function readRecordedYaml(installed: string, find: FindRecorded): PluginYaml | undefined {
  const text = readSmallFileSync(join(installed, PLUGIN_YAML), PLUGIN_YAML_LIMITS.bytes, constants.O_NOFOLLOW)
  const isRecorded = text !== undefined && find(PLUGIN_YAML)?.sha256 === hash('sha256', text)
  return isRecorded ? parsePluginYaml(text) : undefined
}

function tryOrUndefined<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

/**
 * Returns a function that looks up single paths in the record of an installed tree. The first call to that function
 * opens the record, and throws as `readInstalled` and `openTreeRecord` do.
 */
export function findRecordedIn(layout: Layout, tree: PartName): FindRecorded {
  let find: FindRecorded | undefined
  return path => {
    const identity = find ? undefined : findInstalled(readInstalled(layout), tree)
    find ??= (identity && openTreeRecord(layout, identity)) ?? (() => undefined)
    return find(path)
  }
}

/** Returns the differences between a tree and the record of a version; undefined if there is no record. */
export async function compareRecorded(
  layout: Layout,
  { identity, ...tree }: ScannedTree & { readonly identity: TreeIdentity },
  { signal, byContent = false }: Comparison,
): Promise<TreeDifference | undefined> {
  const record = readTreeRecord(layout, identity)
  return record && (await compareTree(tree, byContent ? withoutStamps(record) : record, signal))
}

/** Keeps the stamp of a file whose bytes were not read when it was recorded: nothing else identifies the file. */
function* withoutStamps(record: Iterable<RecordedItem>): Generator<RecordedItem, undefined> {
  for (const item of record) yield item.sha256 === undefined ? item : { ...item, stamp: undefined }
}

/** Explains why a tree could not be compared with the installed version; for a damaged record, also says what to do. */
export function whyNotCompared(error: unknown, layout: Layout, identity: TreeIdentity | undefined): string {
  const record = identity?.tree_record
  if (!(error instanceof TreeRecordDamage) || record === undefined)
    return toHostError(error, 'reading the installed files or their record').message
  return `${treeRecordPath(layout, record)} is not a record of installed files that this action writes (${error.message}). Move it away: the next deployment of this part writes a new record.`
}

/**
 * The maximum age, in milliseconds, of a comparison that is recent enough for a note about a tree. The note is only
 * about the tree's state before the move; see `moved`.
 */
const RECENT_MS = 5000
/**
 * The maximum age, in milliseconds, of a comparison that counts as current. The age is measured from the start of the
 * comparison, when the first files are read.
 */
const JUST_NOW_MS = 1000

interface DriftCheckSetting extends RecordFolder {
  keepPathsOf(part: Place): readonly string[]
  readonly signal: AbortSignal
  readonly clockMs?: () => number
}

/** A comparison, with its start and end in milliseconds of the clock; the end is infinite while the comparison runs. */
interface RunningComparison {
  readonly difference: Promise<TreeDifference | undefined>
  readonly stamps: TreeStamps
  readonly startedAt: number
  endedAt: number
}

/** Compares installed trees with their records; see `findDrift`. */
export class DriftCheck {
  readonly #setting: DriftCheckSetting
  readonly #clockMs: () => number
  #isDisregarded = false
  readonly #found = new Map<string, RunningComparison>()

  constructor(setting: DriftCheckSetting) {
    this.#setting = setting
    this.#clockMs = setting.clockMs ?? monotonicMs
  }

  /** After this call, no difference is known, because the places do not contain the trees that the records describe. */
  disregard(): void {
    this.#isDisregarded = true
  }

  /** Returns the last differences found; compares a part only if it has not been compared yet. */
  async of(part: Place): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    return await (this.#found.get(placeName(part)) ?? this.#compare(part)).difference
  }

  /** Returns the present differences; a part that could not be compared is not compared again. */
  async again(part: Place): Promise<TreeDifference | undefined> {
    if (this.#isDisregarded) return undefined
    const known = this.#found.get(placeName(part))
    if (known !== undefined && (await known.difference) === undefined) return undefined
    return await this.#compare(part).difference
  }

  /** Returns the current differences, or those from less than 5 seconds ago. */
  async recent(part: Place): Promise<TreeDifference | undefined> {
    const found = this.#found.get(placeName(part))
    return found !== undefined && this.#clockMs() - found.endedAt < RECENT_MS
      ? await this.of(part)
      : await this.again(part)
  }

  /**
   * Returns the differences that a tree had when it left its place. For a tree that will be kept, differences
   * from up to a second earlier also count. The tree was moved to `root`, where no process reaches the tree by its old
   * name. Compares the tree again only if anything in it has changed since the last comparison. A part that could not
   * be compared is not compared again.
   */
  async moved(
    part: Place,
    { root, isKept }: { readonly root: string; readonly isKept: boolean },
  ): Promise<TreeDifference | undefined> {
    const known = this.#found.get(placeName(part))
    if (this.#isDisregarded || known === undefined || (await known.difference) === undefined) return undefined
    if (isKept && this.#clockMs() - known.startedAt < JUST_NOW_MS) return await known.difference
    const tree = { root, keepPaths: this.#setting.keepPathsOf(part) }
    if (await known.stamps.areThoseOf(tree, this.#setting.signal)) return await known.difference
    return await this.#compare(part, root).difference
  }

  #compare(part: Place, root?: string): RunningComparison {
    const { shelf, id, directory } = part
    const { signal } = this.#setting
    const startedAt = this.#clockMs()
    const stamps = new TreeStamps()
    const onStamp = (path: string, stamp: string): void => stamps.see(path, stamp)
    const tree = { shelf, id, directory, keepPaths: this.#setting.keepPathsOf(part), root, onStamp }
    const difference = findDrift(this.#setting, tree, signal)
    const found = { difference, stamps, startedAt, endedAt: Number.POSITIVE_INFINITY }
    const end = (): void => {
      found.endedAt = this.#clockMs()
    }
    difference.then(end, end)
    this.#found.set(placeName({ shelf, id }), found)
    return found
  }
}

/** True if two comparisons found the same differences. */
export function isSameDifference(one: TreeDifference | undefined, other: TreeDifference | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}

/** True if there is no difference except added files. */
export function isOnlyAdded({ removed, changed, instead }: Omit<TreeDifference, 'added'>): boolean {
  return instead === undefined && removed.length + changed.length === 0
}

/**
 * True if a snapshot that was compared with its record is as it was retained. The record of a modified snapshot leaves
 * out the files that were added on this host, so added files do not count there.
 */
export function isAsRetained({ modified }: Pick<SnapshotRow, 'modified'>, difference: TreeDifference): boolean {
  return modified ? isOnlyAdded(difference) : !isModified(difference)
}

/** Describes the number of added files; `isLeast` says that further ones were not counted. */
export function addedInWords(count: number, isLeast = false): string {
  if (count === 1) return '1 file was added on this host'
  return `${isLeast ? 'at least ' : ''}${countInWords(count)} files were added on this host`
}

/** True if there is any difference. */
export function isModified(drift: TreeDifference | undefined): drift is TreeDifference {
  if (drift === undefined) return false
  const { added, removed, changed, instead } = drift
  return instead !== undefined || added.length + removed.length + changed.length > 0
}

const schema = z.lazy(() => z.object({ modified: z.boolean(), states: z.array(z.tuple([z.string(), z.string()])) }))

type State = TreeItem & { readonly stamp: string | undefined }

const NOTHING = { path: '', kind: 'none', content: '', stamp: '' }

/** The state of a tree before the deployment. */
interface DriftNote {
  /** Whether the tree differed from its record. */
  readonly modified: boolean
  /** The state of each recorded path that differed. */
  readonly states: ReadonlyMap<string, string>
}

/** A part, with the absolute path of its tree. */
type PartRoot = PartName & { readonly root: string }

/** The path of the note about an installed tree: in the staging folder of the deployment that replaces the tree. */
export function driftNotePath(stagingFolder: string, { shelf, id }: PartName): string {
  return join(stagingFolder, `drift-${shelf}-${id}.json`)
}

/**
 * Notes the differences that exist between a tree and its record before the deployment, so that a rollback can
 * distinguish them from damage. Replaces an earlier note about the tree. The note is not durable: without it, a
 * rollback can only verify less.
 */
export async function noteDrift(stagingFolder: string, tree: PartRoot, drift: TreeDifference): Promise<void> {
  const path = driftNotePath(stagingFolder, tree)
  const states: [string, string][] = []
  await new TimeSlice().forEach([...drift.removed, ...drift.changed], different => {
    states.push([different, drift.instead ?? stateOf(tree.root, different)])
  })
  writeFileSync(path, JSON.stringify({ modified: isModified(drift), states }), { mode: 0o600 })
}

/** Returns the note; undefined if there is none that can be read, for example after a power cut. */
export function readDriftNote(stagingFolder: string, part: PartName): DriftNote | undefined {
  try {
    const note = schema.parse(JSON.parse(readStateFileSync(driftNotePath(stagingFolder, part)) ?? ''))
    return { ...note, states: new Map(note.states) }
  } catch {
    return undefined
  }
}

/** The facts about a tree from before the deployment that was rolled back. */
export interface TreeBefore {
  readonly root: string
  readonly note: DriftNote
  readonly recorded: FindRecorded
  /** Whether the run crashed: a power cut can leave a file empty if its bytes had not reached the disk. */
  readonly isAfterCrash: boolean
}

/** The recorded paths that differ now but did not differ in the same way when the note was made. */
interface LaterDifference {
  /**
   * Missing, no longer files, empty after a crash, or different without a sign of a write: the disk or a deployment may
   * have damaged them.
   */
  readonly damaged: readonly string[]
  /** Files that another process has since written or replaced, as their inodes or times show. */
  readonly written: readonly string[]
}

export async function findLater(before: TreeBefore, now: TreeDifference): Promise<LaterDifference> {
  const later = { damaged: [] as string[], written: [] as string[] }
  await new TimeSlice().forEach([...now.removed, ...now.changed], path => {
    const item = now.instead === undefined ? describeItemSync(before.root, path) : undefined
    const noted = before.note.states.get(path)
    if (noted === (now.instead ?? stateText(item))) return
    const isWritten = isWrittenSince(noted ?? stateText(before.recorded(path)), item, before.isAfterCrash)
    later[isWritten ? 'written' : 'damaged'].push(path)
  })
  return later
}

/**
 * A write changes the stamp even if the clock was set back; only a write in the same tick of the clock goes unnoticed.
 */
function isWrittenSince(before: string, item: FoundItem | undefined, isAfterCrash: boolean): boolean {
  if (item === undefined || item.kind === 'link' || item.kind === 'other') return false
  const [, size, ...stamp] = before.split('\t')
  const isLost = isAfterCrash && item.content === '0' && size !== '0'
  return !isLost && stamp.join('\t') !== item.stamp
}

function stateOf(root: string, path: string): string {
  return stateText(describeItemSync(root, path))
}

/** Returns a text that is different for each state of a path. */
function stateText({ kind, content, stamp = '' }: State = NOTHING): string {
  return [kind, content, stamp].join('\t')
}

/** The lines of a path in two records; undefined for a record that does not list it. */
interface Versions {
  before?: RecordedLine
  after?: RecordedLine
}

/**
 * Counts the files that a new tree changes, adds and removes. Compares the items of the new tree with the record of the
 * old one while the items pass through `count`, so that no file is read again.
 */
export class TreeChange {
  readonly #before: Iterable<RecordedLine> | undefined
  #counts = { changed: 0, added: 0, removed: 0, all: 0 }
  #isUncounted = false
  /**
   * The numbers of counted files for which the new tree only undoes a change on the host: edited and missing files are
   * restored, and added files are removed.
   */
  #undone = { restored: 0, removed: 0 }

  /**
   * `before` is the installed tree, if any. Never throws: without a readable record of that tree, nothing is compared.
   */
  constructor(layout: Layout, before: TreeIdentity | undefined) {
    this.#before = before && orUndefined(() => readRecordLines(layout, before))
  }

  /** Passes on the items of the new tree while counting them. */
  *count(items: Iterable<RecordedItem>): Generator<RecordedItem, undefined> {
    const before = (this.#before ?? [])[Symbol.iterator]()
    const next = (): RecordedLine | undefined => before.next().value
    let old = next()
    for (const item of items) {
      const line = asLine(item)
      while (old !== undefined && old.path !== line.path && comparePaths(old.path, line.path) < 0) {
        this.#counts.removed++
        old = next()
      }
      if (old?.path !== line.path) this.#counts.added++
      else {
        if (old.fields !== line.fields) this.#counts.changed++
        old = next()
      }
      this.#counts.all++
      yield item
    }
    for (; old !== undefined; old = next()) this.#counts.removed++
  }

  /**
   * Adjusts the counts, which compare two records, for the differences between the replaced tree and its own record.
   * Reads each record at most once, however many files differ. Works in slices. If a record cannot be read, throws as
   * `readRecordLines` does and corrects nothing.
   */
  async correct(drift: TreeDifference, layout: Layout, records: Record<keyof Versions, TreeIdentity>): Promise<void> {
    if (drift.instead !== undefined) {
      this.#counts = { ...this.#counts, changed: 0, removed: 0, added: this.#counts.all }
      return
    }
    if (drift.uncounted) {
      this.#isUncounted = true
      return
    }
    const versions = await findVersions([...drift.changed, ...drift.removed, ...drift.added], layout, records)
    for (const path of drift.changed) if (isSameVersionOfLine(versions.get(path))) this.#restore('changed')
    for (const path of drift.removed) {
      if (isSameVersionOfLine(versions.get(path))) this.#restore('added')
      else if (versions.get(path)?.after === undefined) this.#counts.removed--
      else this.#recount('changed', 'added')
    }
    for (const path of drift.added) {
      if (versions.get(path)?.after !== undefined) this.#recount('added', 'changed')
      else {
        this.#counts.removed++
        this.#undone.removed++
      }
    }
  }

  #restore(how: 'changed' | 'added'): void {
    this.#counts[how]++
    this.#undone.restored++
  }

  #recount(from: 'changed' | 'added', to: 'changed' | 'added'): void {
    this.#counts[from]--
    this.#counts[to]++
  }

  /**
   * Returns, for example, `58 files changed, 2 added, 1 removed`; returns the number of all files if the changes could
   * not be counted.
   */
  inWords(): string {
    const { changed, added, removed, all } = this.#counts
    if (this.#before === undefined || this.#isUncounted) return countInWords(all, 'file')
    const parts = Object.entries({ changed, added, removed }).filter(([, count]) => count > 0)
    if (parts.length === 0) return 'no file changed'
    const undone = this.#undone
    if (undone.restored + undone.removed === changed + added + removed) {
      const restored = undone.restored === 0 ? [] : [`${countInWords(undone.restored, 'edited file')} restored`]
      const dropped = undone.removed === 0 ? [] : [`${countInWords(undone.removed, 'added file')} removed`]
      return [...restored, ...dropped].join(', ')
    }
    return parts
      .map(([how, count], index) => `${index === 0 ? countInWords(count, 'file') : countInWords(count)} ${how}`)
      .join(', ')
  }
}

/** Returns the lines of these paths in two records. */
async function findVersions(
  paths: readonly string[],
  layout: Layout,
  records: Record<keyof Versions, TreeIdentity>,
): Promise<ReadonlyMap<string, Versions>> {
  const versions = new Map<string, Versions>(paths.map(path => [path, {}]))
  const slice = new TimeSlice()
  for (const which of ['before', 'after'] as const) {
    await slice.forEach(readRecordLines(layout, records[which]) ?? [], line => {
      const found = versions.get(line.path)
      if (found !== undefined) found[which] = line
    })
  }
  return versions
}

function isSameVersionOfLine({ before, after }: Versions = {}): boolean {
  return before !== undefined && before.fields === after?.fields
}

/** Returns undefined instead of throwing. Damage to a record is reported where the record is needed. */
function orUndefined<Value>(read: () => Value): Value | undefined {
  try {
    return read()
  } catch {
    return undefined
  }
}

const READ_ONLY = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK

/** True if it cannot be found out whether a file is at the path, or what is in it. */
export function isHidden(path: string): boolean {
  try {
    if (lstatSync(path).isFile()) closeQuietlySync(openSync(path, READ_ONLY))
    return false
  } catch (error) {
    return !isAbsent(error)
  }
}

/** After attempt n, the wait is n milliseconds: 0.1 s in total. */
const MAX_ATTEMPTS = 14
/** The limit for all attempts, in milliseconds: each attempt may examine many files. */
const MAX_MS = 1000

/**
 * Examines the damaged paths again, and returns those at which the old file is found after all. In that case, another
 * process is renaming the file, or a directory that contains it, back and forth. Never throws; once the signal is
 * aborted, examines nothing more.
 */
export async function findMoving(
  before: TreeBefore,
  damaged: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const slice = new TimeSlice()
  const digester = new FileDigester()
  const moving = new Set<string>()
  const endsAt = monotonicMs() + MAX_MS
  const hasTime = (): boolean => !signal.aborted && monotonicMs() < endsAt
  for (let attempt = 1; attempt <= MAX_ATTEMPTS && moving.size < damaged.length && hasTime(); attempt++) {
    for (const path of damaged) {
      if (slice.isOver()) await slice.giveBack()
      if (!hasTime()) break
      if (!moving.has(path) && (await isAsBefore(before, path, digester))) moving.add(path)
    }
    await setTimeout(attempt)
  }
  return moving
}

async function isAsBefore(
  { root, note, recorded, isAfterCrash }: TreeBefore,
  path: string,
  digester: FileDigester,
): Promise<boolean> {
  try {
    const found = describeItemSync(root, path)
    const noted = note.states.get(path)
    if (noted !== undefined) return noted === stateText(found)
    const item = recorded(path)
    if (item === undefined || found === undefined) return false
    return await isAsRecorded(isAfterCrash ? { ...item, stamp: undefined } : item, found, { root, digester })
  } catch {
    return false
  }
}
