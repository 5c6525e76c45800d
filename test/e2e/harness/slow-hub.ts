import type { TestContext } from 'node:test'
import { openGate } from './hub-gate.ts'

/** A hub that sends its artifacts only once they are released. */
export interface SlowHub {
  readonly url: string
  /** Resolves once a run waits for an artifact. */
  readonly asked: Promise<void>
  letGo(): void
}

/**
 * Opens a proxy to a real hub. The proxy holds back artifacts until `letGo` is called. All other answers pass at once.
 */
export async function openSlowHub(t: TestContext, hubUrl: string): Promise<SlowHub> {
  const asked = Promise.withResolvers<void>()
  const released = Promise.withResolvers<void>()
  const { url } = await openGate(t, hubUrl, async route => {
    if (route !== 'artifact') return
    asked.resolve()
    await released.promise
  })
  return { url, asked: asked.promise, letGo: released.resolve }
}
