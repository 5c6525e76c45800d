import type { Outcome } from '../../core/outcome.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { readInstalled } from '../host/installed/host-record.ts'
import { placeOf } from '../host/installed/row-place.ts'
import type { InstalledRow } from '../host/installed/rows.ts'
import { installPath, type Layout } from '../host/layout.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'
import { findCommit, type JournalRecord, pendingChanges } from '../transaction/journal/journal-record.ts'
import { readJournal } from '../transaction/journal/read-journal.ts'

/**
 * Returns the version of this plugin, service or project that the host runs after a deployment with this outcome; null
 * if nothing is installed, or if the host may have neither version intact. Never throws.
 */
export function runningAfter(layout: Layout, facts: DeploymentFacts, outcome: Outcome): string | null {
  if (outcome === 'inconsistent') return null
  return outcome === 'success' ? facts.version : readRunningVersion(layout, facts)
}

/**
 * Returns the version that the host runs: the one that a run has committed but not recorded yet, else the one in the
 * host's record, else the one that this deployment found installed. Returns null while another run may be changing the
 * version, or if the version's directories are gone or cannot be examined. Never throws.
 */
export function readRunningVersion(layout: Layout, facts: DeploymentFacts): string | null {
  const journal = orNone(() => readJournal(layout.journal) ?? [])
  const committed = findCommit(journal)?.rows
  if (committed === undefined && isChanging(journal, facts)) return null
  const own = [...(committed ?? []), ...orNone(() => readInstalled(layout))].filter(row => isOf(row, facts))
  if (own.length === 0) return facts.previous_version
  const present = own.filter(row => isThere(installPath(layout, placeOf(row))))
  return (facts.contract === 'project' ? newestProjectVersion(present) : present[0]?.version) ?? null
}

/**
 * True if a run that has the host, or was killed while it had the host, has announced changes of this origin and has
 * not undone them.
 */
function isChanging(journal: readonly JournalRecord[], { contract, slug }: DeploymentFacts): boolean {
  const [begin] = journal
  const isOfThis = begin?.record === 'begin' && begin.facts.contract === contract && begin.facts.slug === slug
  return isOfThis && pendingChanges(journal).length > 0
}

/** Returns the project version of the part that was installed last. */
export function newestProjectVersion(rows: readonly InstalledRow[]): string | null {
  const newest = rows.toSorted((a, b) => timeOf(a) - timeOf(b)).at(-1)
  return newest?.project_version ?? null
}

/** A part that was installed at an unknown time counts as the oldest. */
function timeOf({ installed_at: at }: InstalledRow): number {
  return at === null ? 0 : Date.parse(at)
}

function isOf({ contract, kind, slug }: InstalledRow, facts: DeploymentFacts): boolean {
  return contract === facts.contract && slug === facts.slug && (contract === 'project' || kind === facts.kind)
}

/** False if the path cannot be examined. */
function isThere(path: string): boolean {
  try {
    return pathExistsSync(path)
  } catch {
    return false
  }
}

/** Ignores a record that cannot be read: the code that needs the record reports the error. */
function orNone<T>(read: () => readonly T[]): readonly T[] {
  try {
    return read()
  } catch {
    return []
  }
}
