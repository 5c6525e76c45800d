import { cleanForeignText } from '../../core/foreign-text.ts'
import { isModified } from '../host/drift-check.ts'
import { findInstalled, readInstalled } from '../host/installed.ts'
import { type Place, placeName } from '../host/layout.ts'
import type { TreeDifference } from '../host/tree-comparison.ts'
import { listDrift } from '../reports/drift-names.ts'
import type { StepContext } from '../steps/step-context.ts'
import type { Deployment } from '../transaction/context.ts'
import type { DriftEntry } from '../transaction/facts.ts'

const MAX_NAME_CHARS = 150
/** In one report, of all parts together: a tree that a tool has rewritten may differ in every file. */
const MAX_REPORTED_PATHS = 500

/**
 * Does some work, and meanwhile compares what is installed in these places with its record. Warns of what differs and
 * adds it to the report before it returns or throws as the work does. Never fails for another reason.
 */
export async function besideDriftCheck<Done>(
  deployment: Deployment,
  places: readonly Place[],
  work: Promise<Done>,
): Promise<Done> {
  // A cancel ends both.
  const [done] = await Promise.allSettled([work, reportDrift(deployment, places)])
  if (done.status === 'rejected') throw done.reason
  return done.value
}

/**
 * Warns, once for all, of installed files that are not as they were installed, and adds them to the report; those that
 * are in it already are not repeated. Throws only the reason of a cancel.
 */
export async function reportDrift(deployment: Deployment, places: readonly Place[]): Promise<void> {
  const { record, tools } = deployment
  const { drift: known = [] } = record.facts
  const found: DriftEntry[] = []
  for (const place of places.filter(place => !known.some(entry => placeName(entry) === placeName(place)))) {
    const difference = await deployment.drift.of(place)
    if (isModified(difference)) found.push(entryOf(deployment, place, difference))
  }
  if (found.length === 0) return
  tools.log.warning(describeDrift(found))
  await record.update({ drift: bounded([...known, ...found]) })
}

function entryOf({ layout }: Deployment, { shelf, id }: Place, difference: TreeDifference): DriftEntry {
  const version = findInstalled(readInstalled(layout), { shelf, id })?.version ?? null
  const { instead } = difference
  const none = { added: [], removed: [], changed: [] }
  return { shelf, id, version, ...(instead === undefined ? difference : { ...none, instead }) }
}

/** Adds to the report which snapshots have the modified trees that were replaced. */
export async function noteModifiedSnapshots({ deployment, results }: StepContext): Promise<void> {
  const { record } = deployment
  const drift = record.facts.drift?.map(entry => {
    const { snapshot, modified } = results.get(placeName(entry)) ?? {}
    const path = `.hub-deploy/snapshots/${placeName(entry)}/${snapshot}`
    return snapshot === undefined || modified === undefined ? entry : { ...entry, snapshot: path }
  })
  if (drift?.some(({ snapshot }) => snapshot !== undefined)) await record.update({ drift })
}

function bounded(entries: readonly DriftEntry[]): DriftEntry[] {
  let room = MAX_REPORTED_PATHS
  return entries.map(({ omitted: before = 0, ...entry }) => {
    let omitted = before
    const take = (paths: readonly string[]): string[] => {
      const taken = paths.slice(0, room)
      room -= taken.length
      omitted += paths.length - taken.length
      return taken
    }
    const [changed, removed, added] = [take(entry.changed), take(entry.removed), take(entry.added)]
    return { ...entry, added, removed, changed, ...(omitted > 0 ? { omitted } : {}) }
  })
}

function describeDrift(entries: readonly DriftEntry[]): string {
  const { names, more } = listDrift(entries)
  const listed = names.map(name => cleanForeignText(name, MAX_NAME_CHARS)).join(', ')
  return `Files on this host are not as they were installed: ${listed}${more > 0 ? ` and ${more} more` : ''}.`
}
