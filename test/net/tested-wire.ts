import type { WireOptions } from '../../src/net/settings.ts'
import { createWire, type Wire } from '../../src/net/wire.ts'

export interface TestedWire extends Wire {
  /** The lines of its log. */
  lines: string[]
  /** The waits between attempts, in milliseconds, which the wire skips. */
  waits: number[]
}

/** A wire that records its waits instead of waiting. */
export function createTestedWire(options: Partial<WireOptions> = {}): TestedWire {
  const lines: string[] = []
  const waits: number[] = []
  const wire = createWire({
    allowHttp: false,
    userAgent: 'hub-deploy-test',
    log: line => lines.push(line),
    sleep: async ms => {
      waits.push(ms)
    },
    random: () => 0.5,
    ...options,
  })
  return { ...wire, lines, waits }
}

/** A GET with a generous deadline and no retries. */
export function get(url: string) {
  return { method: 'GET', url, retry: 'never', timeoutMs: 600_000 } as const
}
