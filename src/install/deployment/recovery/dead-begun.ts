import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { errnoOf } from '../../../core/errors.ts'
import { isSystemError } from '../../files/system-errors.ts'
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

/** Longer than any job may run, including its download and its wait for the host. */
const LONGEST_RUN_MS = 10 * 86_400_000
/**
 * The records that a run may write before it has the host, and those that a later run adds when it reports that run.
 */
const HARMLESS: ReadonlySet<JournalRecord['record']> = new Set([
  'begin',
  'held',
  'facts',
  'state',
  'end',
  'reported',
  'recovery',
])

/** The codes for a symlink, a directory and a socket. */
const NOT_A_FILE: ReadonlySet<string> = new Set(['ELOOP', 'EISDIR', 'ENXIO'])

/** The journal of a run that died, or may have died, before it had the host. */
export interface BegunJournal {
  readonly path: string
  /**
   * Whether the journal is unusable: it is not a file, is damaged, is not about the deployment in its name, or contains records
   * that a run writes only once it has the host.
   */
  readonly isDamaged: boolean
}

/**
 * Finds the journals of runs that died before they had the host. A run counts as dead if its process has provably ended
 * or no longer locks the journal, or if it is this run's own main step. A run also counts as dead if its journal is
 * older than any run can be, or does not say which process wrote it. A run whose process is seen to be running never
 * counts as dead. A journal that the system does not let this process read now is left to later runs.
 */
export async function findDeadBegun(host: Pick<Host, 'layout' | 'run'>): Promise<BegunJournal[]> {
  const { own } = host.layout
  const dead: BegunJournal[] = []
  for (const name of readdirSync(own)) {
    const id = begunDeployment(name)
    if (id !== undefined) dead.push(...(await judgeIfReadable(host, join(own, name), id)))
  }
  return dead
}

async function judgeIfReadable(host: Pick<Host, 'run'>, path: string, id: string): Promise<BegunJournal[]> {
  try {
    return await judge(host, path, id)
  } catch (error) {
    if (!isSystemError(error)) throw error
    return NOT_A_FILE.has(errnoOf(error) ?? '') ? [{ path, isDamaged: true }] : []
  }
}

async function judge({ run }: Pick<Host, 'run'>, path: string, id: string): Promise<BegunJournal[]> {
  const begin = readBegin(path)
  if (begin?.process === undefined) return [{ path, isDamaged: true }]
  const { process, facts } = begin
  const own = readOwnIdentity()
  // The run may be alive even if its records are unknown here: another version of this action may write other records.
  if (isSeenRunning(process, own)) return []
  const isOld = Date.now() - Date.parse(facts.started_at) > LONGEST_RUN_MS
  const records = tryToRead(path)
  const isDead = id === run.id || isOld || isProvablyDead(process, own) || (await isLetGo(path, { process, records }))
  if (!isDead) return []
  const isHarmless = records.length > 0 && records.every(({ record }) => HARMLESS.has(record))
  return [{ path, isDamaged: facts.deployment_id !== id || !isHarmless }]
}

/** True if the run once locked its journal, but, according to this machine's kernel, no longer does. */
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
  } catch (error) {
    if (isSystemError(error)) throw error
    return []
  }
}
