import { cleanForeignText } from '../../core/foreign-text.ts'
import { isModified } from '../host/drift-check.ts'
import { findInstalled, readInstalled } from '../host/installed.ts'
import { type Place, placeName } from '../host/layout.ts'
import type { TreeDifference } from '../host/tree-comparison.ts'
import type { Deployment } from '../transaction/context.ts'
import { listDrift } from '../transaction/drift-names.ts'
import type { DriftEntry } from '../transaction/facts.ts'
import type { StepContext } from './step-context.ts'

const MAX_NAME_CHARS = 150
/** In one report, of all parts together: a tree that a tool has rewritten may differ in every file. */
const MAX_REPORTED_PATHS = 500
const MAX_REPORTED_BYTES = 64 * 1024

/**
 * Does some work, and meanwhile compares anew what is installed in these places with its record. Warns of what differs and
 * adds it to the report before it returns or throws as the work does. Never fails for another reason.
 */
export async function besideDriftCheck<Done>(
  deployment: Deployment,
  places: readonly Place[],
  work: Promise<Done>,
): Promise<Done> {
  // A cancel ends both.
  const [done] = await Promise.allSettled([work, reportAnew(deployment, places)])
  if (done.status === 'rejected') throw done.reason
  return done.value
}

async function reportAnew(deployment: Deployment, places: readonly Place[]): Promise<void> {
  for (const place of places) await deployment.drift.again(place)
  await reportDrift(deployment, places)
}

/**
 * Warns of installed files that are not as they were installed, and adds them to the report, as well as what could not
 * be compared; what it has said already is not repeated. Throws only the reason of a cancel.
 */
export async function reportDrift(deployment: Deployment, places: readonly Place[]): Promise<void> {
  const { record, tools } = deployment
  const { drift: known = [] } = record.facts
  const news = await deployment.drift.news(places)
  const found = [...news].flatMap(([place, difference]) => entryOf(deployment, place, difference) ?? [])
  const names = new Set([...news.keys()].map(placeName))
  const drift = [...known.filter(entry => !names.has(placeName(entry))), ...found]
  if (drift.length + known.length === 0) return
  const differing = found.filter(({ compared }) => compared !== false)
  if (differing.length > 0) tools.log.warning(describeDrift(differing))
  await record.update({ drift: bounded(drift) })
}

function entryOf(
  { layout }: Deployment,
  { shelf, id }: Place,
  difference: TreeDifference | undefined,
): DriftEntry | undefined {
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  const version = installed?.version ?? null
  if (difference === undefined)
    return installed && { shelf, id, version, added: [], removed: [], changed: [], compared: false }
  if (!isModified(difference)) return undefined
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
  let [room, bytes] = [MAX_REPORTED_PATHS, MAX_REPORTED_BYTES]
  return entries.map(({ omitted: before = 0, ...entry }) => {
    let omitted = before
    const take = (paths: readonly string[]): string[] => {
      const taken = paths.filter(path => {
        if (room <= 0) return false
        const size = Buffer.byteLength(JSON.stringify(path))
        if (size > bytes) return false
        room -= 1
        bytes -= size
        return true
      })
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
