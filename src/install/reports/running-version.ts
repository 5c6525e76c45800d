import type { Outcome } from '../../core/outcome.ts'
import { type InstalledRow, readInstalled } from '../host/installed.ts'
import type { Layout } from '../host/layout.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'
import { findCommit, readJournal } from '../transaction/journal.ts'

/**
 * What the host runs of this plugin, service or project after a deployment of it has ended so; null where nothing is
 * installed, and where the host may run neither version whole. Never throws.
 */
export function runningAfter(layout: Layout, facts: DeploymentFacts, outcome: Outcome): string | null {
  if (outcome === 'inconsistent') return null
  return outcome === 'success' ? facts.version : readRunningVersion(layout, facts)
}

/**
 * What the host runs by our own record, which includes what a dead run has committed without recording it; else the
 * version that this deployment has found in the place. Never throws.
 */
export function readRunningVersion(layout: Layout, facts: DeploymentFacts): string | null {
  const rows = [...orNone(() => readCommitted(layout)), ...orNone(() => readInstalled(layout))]
  const own = rows.filter(row => isOf(row, facts))
  return (facts.contract === 'project' ? newestProjectVersion(own) : own[0]?.version) ?? facts.previous_version
}

/** The version of a project is that of the part installed last. */
export function newestProjectVersion(rows: readonly InstalledRow[]): string | null {
  const newest = rows.toSorted((a, b) => (a.installed_at ?? '').localeCompare(b.installed_at ?? '')).at(-1)
  return newest?.project_version ?? null
}

function isOf({ contract, kind, slug }: InstalledRow, facts: DeploymentFacts): boolean {
  return contract === facts.contract && slug === facts.slug && (contract === 'project' || kind === facts.kind)
}

function readCommitted({ journal }: Layout): readonly InstalledRow[] {
  return findCommit(readJournal(journal) ?? [])?.rows ?? []
}

/** A record that cannot be read is named where it is needed. */
function orNone<T>(read: () => readonly T[]): readonly T[] {
  try {
    return read()
  } catch {
    return []
  }
}
