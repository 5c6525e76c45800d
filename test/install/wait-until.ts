import { setTimeout } from 'node:timers/promises'

const LIMIT_MS = 120_000

/** Resolves once the condition is met. The limit is for a test that hangs, not for a busy machine. */
export async function waitUntil(what: string, isMet: () => boolean): Promise<void> {
  for (let waitedMs = 0; !isMet(); waitedMs += 20) {
    if (waitedMs >= LIMIT_MS) throw new Error(`Waited ${LIMIT_MS / 1000} s until ${what}.`)
    await setTimeout(20)
  }
}
