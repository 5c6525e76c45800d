import { statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { Clock } from '../src/install/files/child-process.ts'

const LIMIT_MS = 120_000

/** Resolves once the condition is met. The limit is for a test that hangs, not for a busy machine. */
export async function waitUntil(what: string, isMet: () => boolean): Promise<void> {
  for (let waitedMs = 0; !isMet(); waitedMs += 20) {
    if (waitedMs >= LIMIT_MS) throw new Error(`After ${LIMIT_MS / 1000} s, this is still not true: ${what}.`)
    await setTimeout(20)
  }
}

/**
 * Resolves once the clock of a folder's file system has moved on, so that a later change gets a later time. Leaves the
 * file `probe` in the folder.
 */
export async function timesMoveOn(folder: string): Promise<void> {
  const probe = join(folder, 'probe')
  const changedAt = (): bigint => {
    writeFileSync(probe, '')
    return statSync(probe, { bigint: true }).ctimeNs
  }
  const last = changedAt()
  await waitUntil('the times of files have moved on', () => changedAt() > last)
}

/** A clock that moves forward only by its sleeps, which take no real time. */
export function createSteppedClock(): Clock {
  let nowMs = 0
  return {
    now: () => nowMs,
    async sleep(ms, signal) {
      signal?.throwIfAborted()
      nowMs += ms
    },
  }
}
