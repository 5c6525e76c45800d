import { join } from 'node:path'
import type { ActionRun } from '../../../local/runner.ts'
import { ONE_WORKER, type Tracing, traceCommand } from './strace.ts'

/** Has strace tamper with the nth call of `names` that touches the path: `signal=KILL`, `error=ENOSPC`. */
export function tamper(path: string, names: string, how: string, nth: number | string = 1): Partial<ActionRun> {
  return through({ paths: [path], calls: names.split(','), inject: [`${names}:${how}:when=${nth}`] })
}

/** From the nth change of names on, every one is refused, as on a file system that went read-only. */
export function goReadOnly(nth: number): Partial<ActionRun> {
  const names = 'rename,link,unlink,mkdir,rmdir,ftruncate'
  return through({ calls: names.split(','), inject: [`${names}:error=EROFS:when=${nth}+`] })
}

/** The same before the nth record is written into a journal that exists. */
export function tamperWithRecord(root: string, nth: number, how: string): Partial<ActionRun> {
  return tamper(join(root, '.hub-deploy/journal.jsonl'), 'pwrite64', how, nth)
}

/** Which record of a journal and which rename of a place, counted from 1. */
interface CancelAndBlock {
  readonly place: string
  readonly record: number
  readonly undo: number
}

/** SIGINT before a record of a journal is written, and a pause of two minutes before a rename of the place. */
export function cancelAndBlock(root: string, { place, record, undo }: CancelAndBlock): Partial<ActionRun> {
  return through({
    paths: [join(root, '.hub-deploy/journal.jsonl'), place],
    calls: ['pwrite64', 'rename'],
    inject: [`pwrite64:signal=INT:when=${record}`, `rename:delay_enter=120000000:when=${undo}+`],
  })
}

function through(tracing: Omit<Tracing, 'log'>): Partial<ActionRun> {
  return { through: traceCommand({ log: '/dev/null', ...tracing }), env: ONE_WORKER }
}
