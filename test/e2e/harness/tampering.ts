import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import type { ActionRun } from '../../../local/runner.ts'
import { ONE_WORKER, type Tracing, traceCommand } from './strace.ts'

/** Has strace tamper with the nth call of `names` that touches the path: `signal=KILL`, `error=ENOSPC`. */
export function tamper(path: string, names: string, how: string, nth: number | string = 1): Partial<ActionRun> {
  return through({ paths: [path], calls: names.split(','), inject: [`${names}:${how}:when=${nth}`] })
}

/** Refuses every change of names from the nth one on, like a file system that became read-only. */
export function goReadOnly(nth: number): Partial<ActionRun> {
  const names = 'rename,link,unlink,mkdir,rmdir,ftruncate'
  return through({ calls: names.split(','), inject: [`${names}:error=EROFS:when=${nth}+`] })
}

/** Tampers right before the nth record is written into an existing journal, under whichever of its names. */
export function tamperWithRecord(root: string, nth: number, how: string): Partial<ActionRun> {
  const id = randomUUID()
  return through({ paths: journalsOf(root, id), calls: ['pwrite64'], inject: [`pwrite64:${how}:when=${nth}`] }, id)
}

/** Does the same in a run that only recovers. */
export function tamperWithRecovery(root: string, nth: number, how: string): Partial<ActionRun> {
  return tamper(join(root, '.hub-deploy/journal.jsonl'), 'pwrite64', how, nth)
}

/** The journal's names before and after a run has the host. */
function journalsOf(root: string, deploymentId: string): string[] {
  return [`begun-${deploymentId}.jsonl`, 'journal.jsonl'].map(name => join(root, '.hub-deploy', name))
}

/** The numbers of a journal's record and of a place's rename, counted from 1. */
interface CancelAndBlock {
  readonly place: string
  readonly record: number
  readonly undo: number
}

/** Sends SIGINT before a record of a journal is written, and pauses for two minutes before a rename of the place. */
export function cancelAndBlock(root: string, { place, record, undo }: CancelAndBlock): Partial<ActionRun> {
  const id = randomUUID()
  // The journal gets its first name and its last one before.
  const inject = [`pwrite64:signal=INT:when=${record}`, `rename:delay_enter=120000000:when=${undo + 1}+`]
  return through({ paths: [...journalsOf(root, id), place], calls: ['pwrite64', 'rename'], inject }, id)
}

/** With an id, the deployment gets that id. */
function through(tracing: Omit<Tracing, 'log'>, id?: string): Partial<ActionRun> {
  const env = id === undefined ? ONE_WORKER : { ...ONE_WORKER, 'STATE_deployment-id': id }
  return { through: traceCommand({ log: '/dev/null', ...tracing }), env }
}
