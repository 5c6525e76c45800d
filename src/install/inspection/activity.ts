import { lstatSync } from 'node:fs'
import { isAnnounced, readUnended } from '../deployment/recovery/at-rest.ts'
import { changedPlaces, isInDoubt } from '../deployment/recovery/dead-run.ts'
import { isAbsent } from '../files/trees/tree-walk.ts'
import type { HostRecord } from '../host/installed/record-file.ts'
import { type Layout, placeName } from '../host/layout.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'
import {
  type CommitRecord,
  findCommit,
  findHostRecord,
  type JournalRecord,
} from '../transaction/journal/journal-record.ts'
import { nameRun } from '../transaction/run-name.ts'

/** The activity of deployments on a host. */
export type Activity =
  | { readonly kind: 'quiet' }
  /**
   * A live run is changing or recovering the host; `holder` names that run, or says that one deployment follows
   * another.
   */
  | { readonly kind: 'busy'; readonly holder: string }
  | InterruptedRun

/** A run that died and has not been recovered yet. */
export interface InterruptedRun {
  readonly kind: 'interrupted'
  /** How the run left the host, and what recovers it. */
  readonly sentence: string
  /** The run's commit, if there is one. The versions in the commit are installed, whatever the record says. */
  readonly commit: CommitRecord | undefined
  /** The record of the host as the run found it; undefined if not known. */
  readonly found: HostRecord | undefined
  /** The names of the parts that may have neither the old nor the new version in place. */
  readonly inDoubt: ReadonlySet<string>
}

/**
 * Reads the journal and the lock. Throws DeploymentError `inconsistent` for a journal that is damaged or cannot be
 * read, and `unsafe_host` for a lock that is not a regular file of at most 64 KiB. Also throws the system's error, and
 * the signal's reason once the signal is aborted.
 */
export async function readActivity(layout: Layout, signal: AbortSignal): Promise<Activity> {
  const other = await readUnended(layout, signal)
  if (other === undefined) return { kind: 'quiet' }
  return 'holder' in other ? { kind: 'busy', holder: other.holder } : interruptedRun(layout, other.records)
}

/** Returns a text that changes whenever a deployment begins, announces its first change, commits or ends. */
export function readTraces(layout: Layout): string {
  const { own, installed } = layout
  return [stampOf(own), stampOf(installed), isAnnounced(layout)].join()
}

function interruptedRun(layout: Layout, records: readonly JournalRecord[]): InterruptedRun {
  const deployment = `The ${nameRun(factsIn(records))}`
  const known = { kind: 'interrupted', commit: findCommit(records), found: findHostRecord(records) } as const
  const recovery = 'The next run, or dist/recover.js, recovers this host if possible.'
  if (known.commit !== undefined) {
    const sentence = `${deployment} was interrupted after its commit: its version is installed, but the cleanup is not complete. ${recovery}`
    return { ...known, inDoubt: new Set(), sentence }
  }
  const inDoubt = new Set(isInDoubt(layout) ? changedPlaces(records).map(placeName) : [])
  const state =
    inDoubt.size === 0 ? 'and none of its changes are left' : 'so its parts may be neither the old nor the new version'
  return { ...known, inDoubt, sentence: `${deployment} was interrupted, ${state}. ${recovery}` }
}

function factsIn(records: readonly JournalRecord[]): Partial<DeploymentFacts> {
  const facts = records.flatMap(entry => (entry.record === 'begin' || entry.record === 'facts' ? [entry.facts] : []))
  return Object.assign({}, ...facts)
}

function stampOf(path: string): string {
  try {
    const { ino, size, mtimeNs } = lstatSync(path, { bigint: true })
    return `${ino} ${size} ${mtimeNs}`
  } catch (error) {
    if (isAbsent(error)) return 'none'
    throw error
  }
}
