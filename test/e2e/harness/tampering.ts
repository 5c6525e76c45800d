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

/** Tampers with the write of the nth record to a journal that already has its first record. */
export function tamperWithRecord(root: string, nth: number, how: string): Partial<ActionRun> {
  return tamper(journalOf(root), 'pwrite64', how, nth)
}

function journalOf(root: string): string {
  return join(root, '.hub-deploy/journal.jsonl')
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
  const inject = [`pwrite64:signal=INT:when=${record}`, `rename:delay_enter=120000000:when=${undo}+`]
  return through({ paths: [journalOf(root), place], calls: ['pwrite64', 'rename'], inject })
}

function through(tracing: Omit<Tracing, 'log'>): Partial<ActionRun> {
  return { through: traceCommand({ log: '/dev/null', ...tracing }), env: ONE_WORKER }
}
