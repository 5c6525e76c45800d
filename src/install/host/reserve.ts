import { randomBytes } from 'node:crypto'
import { unlink, writeFile } from '../files/direct-fs.ts'
import { exists } from '../files/tree-walk.ts'
import type { Layout } from './layout.ts'

/** Enough for a lock, the records of a recovery and a report. */
const RESERVE_BYTES = 64 * 1024

/** Keeps some disk space back, so that a host whose disk has filled up can still be locked and recovered. */
export async function keepReserve(layout: Layout): Promise<void> {
  if (await exists(layout.reserve)) return
  // Random, because a file system may store what compresses well in no space at all.
  await writeFile(layout.reserve, randomBytes(RESERVE_BYTES), { flag: 'wx', mode: 0o600 }).catch(() =>
    unlink(layout.reserve).catch(() => {}),
  )
}

/** Gives the reserve up; returns whether there was one. */
export async function spendReserve(layout: Layout): Promise<boolean> {
  return unlink(layout.reserve).then(
    () => true,
    () => false,
  )
}
