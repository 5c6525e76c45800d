import { setTimeout } from 'node:timers/promises'

const LIMIT_MS = 120_000

/** Resolves once the condition is met. The limit is for a test that hangs, not for a busy machine. */
export async function waitUntil(what: string, isMet: () => boolean): Promise<void> {
  for (let waitedMs = 0; !isMet(); waitedMs += 20) {
    if (waitedMs >= LIMIT_MS) throw new Error(`After ${LIMIT_MS / 1000} s, this is still not true: ${what}.`)
    await setTimeout(20)
  }
}
