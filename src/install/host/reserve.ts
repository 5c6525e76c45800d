import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { tryUnlinkSync } from '../files/trees/remove-tree.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import { type Layout, reservePath } from './layout.ts'

/** Enough for a lock, the records of a recovery and a report. */
const RESERVE_BYTES = 64 * 1024

/**
 * Reserves 64 KiB of disk space, if there is room, so that a host whose disk is full can still be locked and recovered.
 */
export function keepReserve(layout: Layout): void {
  if (pathExistsSync(reservePath(layout))) return
  try {
    // Random, because a file system could compress anything else to nothing.
    writeFileSync(reservePath(layout), randomBytes(RESERVE_BYTES), { flag: 'wx', mode: 0o600 })
  } catch {
    tryUnlinkSync(reservePath(layout))
  }
}

/** Releases the reserve. Returns false if there is none, or if it cannot be removed. */
export function spendReserve(layout: Layout): boolean {
  return tryUnlinkSync(reservePath(layout))
}
