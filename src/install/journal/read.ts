import { constants, fstatSync, openSync, readFileSync } from 'node:fs'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { isOfDeployment } from '../changes/change.ts'
import { closeQuietlySync } from '../files/open.ts'
import { pathExistsSync } from '../files/walk.ts'
import { placeName, placeOf } from '../host/layout.ts'
import { retainedPaths } from '../host/record.ts'
import { isFrom } from '../host/rows.ts'
import { MAX_STATE_BYTES } from '../host/state-file.ts'
import { JournalDamage, type JournalText, parseJournalText } from './line.ts'
import {
  type AnnouncedChange,
  announcedIn,
  type BeginRecord,
  type CommitRecord,
  DURABLE,
  isUndoneBy,
  type JournalRecord,
  numberedIn,
  recordSchema,
} from './records.ts'

/**
 * Returns the records of the journal, or undefined if there is no journal. Leaves out the first torn record and all
 * that follow it, because their changes were never made. Throws JournalDamage for any other content that this action
 * would not write, and the system's error if there is a journal that cannot be read, also not at the second attempt.
 */
export function readJournal(path: string): JournalRecord[] | undefined {
  const text = readText(path)
  if (text === undefined) return undefined
  const parsed = z.array(recordSchema).safeParse(text.records)
  if (!parsed.success) {
    const [place = 0, ...field] = parsed.error.issues[0]?.path ?? []
    throw new JournalDamage(`its line ${Number(place) + 1} has no valid ${field.join('.') || 'content'}`)
  }
  verifySequence(parsed.data)
  verifyBehind(text)
  return parsed.data
}

/**
 * Returns the changes that were announced after a torn record. None of them was made, unless a damaged disk tore that
 * record later.
 */
export function readUnprovenChanges(path: string): AnnouncedChange[] {
  const { records = [], behind = [] } = readText(path) ?? {}
  return recordsIn(behind).flatMap((record, index) => numberedIn(record, records.length + 1 + index))
}

/**
 * Throws JournalDamage if a durable record after the torn one is followed by another record. The other record was
 * written only once the durable record and everything before it were on the disk, so the torn record was damaged later.
 */
function verifyBehind({ records, behind }: JournalText): void {
  const isProven = recordsIn(behind.slice(0, -1)).some(({ record }) => DURABLE.has(record))
  if (isProven) throw new JournalDamage(`its line ${records.length + 1} was written, and has been damaged since`)
}

function recordsIn(values: readonly unknown[]): JournalRecord[] {
  return values.flatMap(value => recordSchema.safeParse(value).data ?? [])
}

function readText(path: string): JournalText | undefined {
  const bytes = readBytes(path)
  return bytes && parseJournalText(bytes)
}

/**
 * A failed `open` does not show that there is a journal: the system may have lacked memory or descriptors for a moment.
 */
function readBytes(path: string): Buffer | undefined {
  try {
    return readFileNoFollow(path)
  } catch (error) {
    if (error instanceof JournalDamage) throw error
    return pathExistsSync(path) ? readFileNoFollow(path) : undefined
  }
}

/** Returns undefined if nothing is at the path. */
function readFileNoFollow(path: string): Buffer | undefined {
  try {
    const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      if (fstatSync(fd).size > MAX_STATE_BYTES) throw new JournalDamage('it is larger than 64 MiB')
      return readFileSync(fd)
    } finally {
      closeQuietlySync(fd)
    }
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/**
 * Verifies rules that no single record can show: one deployment, only its own staging folder and parts, and no undo of
 * a change that was never announced. Throws JournalDamage.
 */
function verifySequence(records: readonly JournalRecord[]): void {
  const [begin, ...later] = records
  if (begin?.record !== 'begin') throw new JournalDamage('its first record does not begin a deployment')
  for (const [index, record] of later.entries()) {
    if (record.record === 'begin') throw new JournalDamage(`its line ${index + 2} begins another deployment`)
    if (!announcedIn(record).every(change => isOfDeployment(change, begin.facts.deployment_id)))
      throw new JournalDamage(`its line ${index + 2} uses the staging folder of another deployment`)
    if (record.record === 'undone' && !isOfAnnounced(record, records))
      throw new JournalDamage(`its line ${index + 2} undoes a change that was not announced`)
    if (record.record === 'commit' && !isOfItsParts(record, begin.facts))
      throw new JournalDamage(`the commit in its line ${index + 2} does not match the deployment`)
  }
}

function isOfAnnounced(
  undone: Extract<JournalRecord, { record: 'undone' }>,
  records: readonly JournalRecord[],
): boolean {
  const announcement = records[undone.of - 1]
  return announcement !== undefined && numberedIn(announcement, undone.of).some(change => isUndoneBy(change, undone))
}

/**
 * True if the commit names no other project, installs and removes only parts of the deployment's origin, and discards
 * only snapshots of these parts that the commit does not retain. The part of a single artifact must have the kind and,
 * if known, the id with which the journal begins.
 */
function isOfItsParts(
  { rows, removed, discard, project }: CommitRecord,
  { contract, slug, kind, id }: BeginRecord['facts'],
): boolean {
  const parts = [...rows, ...removed]
  const retained = retainedPaths(parts)
  const folders = parts.map(part => `.hub-deploy/snapshots/${placeName(placeOf(part))}/`)
  const isPlaced = (part: (typeof parts)[number]): boolean => part.kind === kind && (id === null || part.id === id)
  return (
    (project === undefined || (contract === 'project' && project.slug === slug)) &&
    discard.every(path => folders.some(folder => path.startsWith(folder)) && !retained.has(path)) &&
    parts.every(part => slug !== null && isFrom(part, { contract, slug })) &&
    (contract === 'project' || parts.every(isPlaced))
  )
}
