import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { begunDeployment } from '../../host/layout.ts'
import { isProvablyDead, isSeenRunning, readOwnIdentity } from '../../host/locks/process-identity.ts'
import type { Host } from '../../reports/host.ts'
import type { JournalRecord } from '../../transaction/journal/journal-record.ts'
import { readBegin, readJournal } from '../../transaction/journal/read-journal.ts'

/** Longer than any job may run, download and wait for the host included. */
const LONGEST_RUN_MS = 10 * 86_400_000
/** What a run may record before it has the host, and who reports it. */
const HARMLESS: ReadonlySet<JournalRecord['record']> = new Set([
  'begin',
  'facts',
  'state',
  'end',
  'reported',
  'recovery',
])

/** The journal of a run that died, or may have died, before it had the host. */
export interface BegunJournal {
  readonly path: string
  /** Whether it says nothing: a journal that was not written completely, or is none that this action writes. */
  readonly isDamaged: boolean
}

/**
 * The journals of runs that have died before they had the host: those of processes that have provably ended, the one of
 * this run's own main step, and those that are older than any run. A run that may be alive is left alone.
 */
export function findDeadBegun(host: Pick<Host, 'layout' | 'runId'>): BegunJournal[] {
  const { own } = host.layout
  return readdirSync(own).flatMap(name => {
    const id = begunDeployment(name)
    return id === undefined ? [] : judge(host, join(own, name), id)
  })
}

function judge({ runId }: Pick<Host, 'runId'>, path: string, id: string): BegunJournal[] {
  const begin = readBegin(path)
  if (begin?.process === undefined) return [{ path, isDamaged: true }]
  const { process, facts } = begin
  const own = readOwnIdentity()
  // It may be alive, also where another version of this action has written what this one does not know.
  if (isSeenRunning(process, own)) return []
  const isOld = Date.now() - Date.parse(facts.started_at) > LONGEST_RUN_MS
  if (id !== runId && !isOld && !isProvablyDead(process, own)) return []
  const records = tryToRead(path)
  const isHarmless = records.length > 0 && records.every(({ record }) => HARMLESS.has(record))
  return [{ path, isDamaged: facts.deployment_id !== id || !isHarmless }]
}

function tryToRead(path: string): readonly JournalRecord[] {
  try {
    return readJournal(path) ?? []
  } catch {
    return []
  }
}
