import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { begunDeployment } from '../../host/layout.ts'
import { ANSWER_TIMEOUT_MS, isOnOneMachine, readFreeKernelLock } from '../../host/locks/kernel-lock.ts'
import {
  isProvablyDead,
  isSeenRunning,
  type ProcessIdentity,
  readOwnIdentity,
} from '../../host/locks/process-identity.ts'
import type { Host } from '../../reports/host.ts'
import type { JournalRecord } from '../../transaction/journal/journal-record.ts'
import { readBegin, readJournal } from '../../transaction/journal/read-journal.ts'

/** Longer than any job may run, download and wait for the host included. */
const LONGEST_RUN_MS = 10 * 86_400_000
/** What a run may record before it has the host, and who reports it. */
const HARMLESS: ReadonlySet<JournalRecord['record']> = new Set([
  'begin',
  'held',
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
 * The journals of runs that have died before they had the host: those of processes that have provably ended, or that no
 * longer lock theirs, the one of this run's own main step, and those that are older than any run. A run that may be
 * alive is left alone.
 */
export async function findDeadBegun(host: Pick<Host, 'layout' | 'runId'>): Promise<BegunJournal[]> {
  const { own } = host.layout
  const dead: BegunJournal[] = []
  for (const name of readdirSync(own)) {
    const id = begunDeployment(name)
    if (id !== undefined) dead.push(...(await judge(host, join(own, name), id)))
  }
  return dead
}

async function judge({ runId }: Pick<Host, 'runId'>, path: string, id: string): Promise<BegunJournal[]> {
  const begin = readBegin(path)
  if (begin?.process === undefined) return [{ path, isDamaged: true }]
  const { process, facts } = begin
  const own = readOwnIdentity()
  // It may be alive, also where another version of this action has written what this one does not know.
  if (isSeenRunning(process, own)) return []
  const isOld = Date.now() - Date.parse(facts.started_at) > LONGEST_RUN_MS
  const records = tryToRead(path)
  const isDead = id === runId || isOld || isProvablyDead(process, own) || (await isLetGo(path, { process, records }))
  if (!isDead) return []
  const isHarmless = records.length > 0 && records.every(({ record }) => HARMLESS.has(record))
  return [{ path, isDamaged: facts.deployment_id !== id || !isHarmless }]
}

/** Whether the run has locked its journal, as this machine's kernel knows, and has it locked no more. */
async function isLetGo(
  path: string,
  { process, records }: { readonly process: ProcessIdentity; readonly records: readonly JournalRecord[] },
): Promise<boolean> {
  const isNear = process.boot_id !== null && process.boot_id === readOwnIdentity().boot_id
  if (!isNear || !records.some(({ record }) => record === 'held') || !isOnOneMachine(path)) return false
  return (await readFreeKernelLock({ path, timeoutMs: ANSWER_TIMEOUT_MS.most })) !== undefined
}

function tryToRead(path: string): readonly JournalRecord[] {
  try {
    return readJournal(path) ?? []
  } catch {
    return []
  }
}
