import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import type { ActionRun } from '../../scripts/local-runner.ts'

/** Why no system call can be traced here, or false: what a test's `skip` takes. */
export function whyNoTracing(): string | false {
  const { status } = spawnSync('strace', ['-f', '-o', '/dev/null', 'true'])
  return status === 0 ? false : 'needs strace, and leave to trace'
}

const ONE_FILE_THREAD = { UV_THREADPOOL_SIZE: '1' }

/**
 * Has strace tamper with the nth call of `names` that touches the path: `signal=KILL`, `error=ENOSPC`. Counts are one
 * thread's, so there is only one that works on files.
 */
export function tamper(path: string, names: string, how: string, nth: number | string = 1): Partial<ActionRun> {
  const inject = `inject=${names}:${how}:when=${nth}`
  return {
    through: ['strace', '-f', '-qq', '-o', '/dev/null', '-P', path, '-e', `trace=${names}`, '-e', inject],
    env: ONE_FILE_THREAD,
  }
}

/** From the nth change of names on, every one is refused, as on a file system that went read-only. */
export function goReadOnly(nth: number): Partial<ActionRun> {
  const names = 'rename,link,unlink,mkdir,rmdir,ftruncate'
  const inject = ['-e', `inject=${names}:error=EROFS:when=${nth}+`]
  return {
    through: ['strace', '-f', '-qq', '-o', '/dev/null', '-e', `trace=${names}`, ...inject],
    env: ONE_FILE_THREAD,
  }
}

/** The same before the nth record of a journal is written. */
export function tamperWithRecord(root: string, nth: number, how: string): Partial<ActionRun> {
  return tamper(join(root, '.hub-deploy/journal.jsonl'), 'write', how, nth)
}

/** SIGINT before the nth record of a journal is written, and a pause of 12 s before what is in the place is moved a second time. */
export function cancelAndBlock(root: string, place: string, nth: number): Partial<ActionRun> {
  const paths = ['-P', join(root, '.hub-deploy/journal.jsonl'), '-P', place]
  const cancel = ['-e', `inject=write:signal=INT:when=${nth}`]
  const block = ['-e', 'inject=rename:delay_enter=12000000:when=2+']
  return {
    through: ['strace', '-f', '-qq', '-o', '/dev/null', ...paths, '-e', 'trace=write,rename', ...cancel, ...block],
    env: ONE_FILE_THREAD,
  }
}
