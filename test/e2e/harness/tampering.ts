import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import type { ActionRun } from '../../../local/runner.ts'
import { ONE_WORKER, type Tracing, traceCommand } from './strace.ts'

/**
 * Has strace tamper with the nth call of each of these names that touches the path. `how` is, for example,
 * `signal=KILL` or `error=ENOSPC`.
 */
export function tamper(path: string, names: string, how: string, nth: number | string = 1): Partial<ActionRun> {
  return through({ paths: [path], calls: names.split(','), inject: [`${names}:${how}:when=${nth}`] })
}

/**
 * Makes changes of names and sizes fail, as on a file system that has become read-only. Of each kind of call, the nth
 * and all later ones fail.
 */
export function goReadOnly(nth: number): Partial<ActionRun> {
  const names = 'rename,link,unlink,mkdir,rmdir,ftruncate'
  return through({ calls: names.split(','), inject: [`${names}:error=EROFS:when=${nth}+`] })
}

/**
 * Tampers with the write of the nth record to a journal that already has its first record, whichever name the journal
 * has at that time.
 */
export function tamperWithRecord(root: string, nth: number, how: string): Partial<ActionRun> {
  const id = randomUUID()
  return through({ paths: journalsOf(root, id), calls: ['pwrite64'], inject: [`pwrite64:${how}:when=${nth}`] }, id)
}

/** Tampers with the write of the nth record to an existing `journal.jsonl`, in a run that only recovers the host. */
export function tamperWithRecovery(root: string, nth: number, how: string): Partial<ActionRun> {
  return tamper(join(root, '.hub-deploy/journal.jsonl'), 'pwrite64', how, nth)
}

/** The names of a run's journal: before and after the run gets the lock of the host. */
function journalsOf(root: string, deploymentId: string): string[] {
  return [`begun-${deploymentId}.jsonl`, 'journal.jsonl'].map(name => join(root, '.hub-deploy', name))
}

/**
 * `record` is the number of a journal record. `undo` is the number of the first rename that hangs, among the renames of
 * `place` to another path. Both are counted from 1.
 */
interface CancelAndBlock {
  readonly place: string
  readonly record: number
  readonly undo: number
}

/**
 * Sends SIGINT as a journal record is written, and pauses for two minutes before each rename from number `undo`
 * onwards.
 */
export function cancelAndBlock(root: string, { place, record, undo }: CancelAndBlock): Partial<ActionRun> {
  const id = randomUUID()
  // The rename of the journal to its final name comes earlier, and is counted, too.
  const inject = [`pwrite64:signal=INT:when=${record}`, `rename:delay_enter=120000000:when=${undo + 1}+`]
  return through({ paths: [...journalsOf(root, id), place], calls: ['pwrite64', 'rename'], inject }, id)
}

/** If an id is given, the deployment gets that id. */
function through(tracing: Omit<Tracing, 'log'>, id?: string): Partial<ActionRun> {
  const env = id === undefined ? ONE_WORKER : { ...ONE_WORKER, 'STATE_deployment-id': id }
  return { through: traceCommand({ log: '/dev/null', ...tracing }), env }
}
