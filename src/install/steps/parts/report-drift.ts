import { cleanForeignText } from '../../../core/foreign-text.ts'
import { findInstalled, readInstalled } from '../../host/installed/host-record.ts'
import { type PartName, placeName } from '../../host/layout.ts'
import { isModified } from '../../host/trees/drift-check.ts'
import type { TreeDifference } from '../../host/trees/tree-comparison.ts'
import type { Deployment } from '../../transaction/context.ts'
import { listDrift } from '../../transaction/drift-names.ts'
import type { DriftEntry } from '../../transaction/facts.ts'
import type { StepContext } from '../step-context.ts'
import type { Part } from './part.ts'

const MAX_NAME_CHARS = 150
/** The limit for one report, over all parts: a tree that a tool has rewritten may differ in every file. */
const MAX_REPORTED_PATHS = 500
const MAX_REPORTED_BYTES = 64 * 1024

/**
 * Adds to the report how the parts that stay in their places differ from what was installed. The differences of other
 * parts are added when these parts are replaced, because other processes may change the files until then.
 */
export async function recordDriftOfKept(deployment: Deployment, parts: readonly Part[]): Promise<void> {
  await recordDrift(
    deployment,
    parts.filter(({ intact }) => intact !== undefined),
  )
}

/**
 * Adds to the report how installed files differ from what was installed, or that they could not be compared. Replaces
 * the earlier entries of these parts. Throws the reason for a cancellation, and as `readInstalled` does.
 */
export async function recordDrift(deployment: Deployment, places: readonly PartName[]): Promise<void> {
  const { record } = deployment
  const { drift: known = [] } = record.facts
  const found = []
  for (const place of places) found.push(entryOf(deployment, place, await deployment.drift.of(place)) ?? [])
  const names = new Set(places.map(placeName))
  const drift = [...known.filter(entry => !names.has(placeName(entry))), ...found.flat()]
  if (drift.length + known.length > 0) await record.update({ drift: bounded(drift) })
}

/** Warns, in one line, of the differences that the report lists. */
export function warnOfDrift({ record, tools }: Deployment): void {
  const differing = (record.facts.drift ?? []).filter(({ compared }) => compared !== false)
  if (differing.length > 0) tools.log.warning(describeDrift(differing))
}

function entryOf(
  { layout }: Deployment,
  { shelf, id }: PartName,
  difference: TreeDifference | undefined,
): DriftEntry | undefined {
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  const directory = installed?.directory === undefined ? {} : { directory: installed.directory }
  const named = { shelf, id, ...directory, version: installed?.version ?? null }
  if (difference === undefined) return installed && { ...named, added: [], removed: [], changed: [], compared: false }
  if (!isModified(difference)) return undefined
  const { instead } = difference
  const none = { added: [], removed: [], changed: [] }
  return { ...named, ...(instead === undefined ? difference : { ...none, instead }) }
}

/** Adds to the report which snapshots contain the modified trees that were replaced. */
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

/** Returns the sentence about these differences for the log. */
export function describeDrift(entries: readonly DriftEntry[]): string {
  const { names, more } = listDrift(entries)
  const listed = names.map(name => cleanForeignText(name, MAX_NAME_CHARS)).join(', ')
  return `Files on this host differ from what was installed: ${listed}${more}.`
}
