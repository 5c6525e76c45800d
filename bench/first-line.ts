import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'

/** Waits for the first line that a hub prints, which says where it listens. Rejects if the hub ends before that. */
export async function firstLineOf(hub: ChildProcess & { readonly stdout: Readable }): Promise<string> {
  const ended = once(hub, 'exit').then(([code, signal]) => {
    throw new Error(`The hub ended with ${signal ?? `exit code ${code}`} before it listened.`)
  })
  const [line] = await Promise.race([once(createInterface(hub.stdout), 'line') as Promise<[string]>, ended])
  return line
}
