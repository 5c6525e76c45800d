import { isFrom } from '../../host/installed/origin.ts'
import { retainedPaths } from '../../host/installed/record-file.ts'
import { placeOf } from '../../host/installed/row-place.ts'
import { placeName } from '../../host/layout.ts'
import { isOfDeployment } from '../changes/change.ts'
import { announcedIn, isUndoneBy, numberedIn } from './announcement.ts'
import { JournalDamage } from './journal-line.ts'
import type { BeginRecord, CommitRecord, JournalRecord } from './journal-record.ts'

/**
 * Verifies rules that no single record can show: one deployment, only its own staging folder and parts, and no undo of
 * a change that was never announced. Throws JournalDamage.
 */
export function verifySequence(records: readonly JournalRecord[]): void {
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
  { rows, removed = [], discard, project }: CommitRecord,
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
