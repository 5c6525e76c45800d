import { setTimeout as delay } from 'node:timers/promises'
import { CONNECT_TIMEOUT_MS, IDLE_TIMEOUT_MS } from './limits.ts'
import { readTrust, type Trust } from './trust.ts'

export interface WireOptions {
  /** Plain http is accepted for any host; without it for loopback addresses only. */
  allowHttp: boolean
  /** PEM text of authorities to trust in addition to the built-in ones. */
  ca?: string
  userAgent: string
  /** Gets one clean line for each retry and each redirect. */
  log: (line: string) => void
  /** Cancels everything under way; what was under way then rejects with the signal's reason. */
  signal?: AbortSignal
  timeouts?: Partial<Timeouts>
  sleep?: Sleep
  /** From 0 to below 1; for the jitter. */
  random?: () => number
}

export interface Timeouts {
  /** Name look-up, proxy, TCP and TLS together. */
  connectMs: number
  /** Longest silence of a server that owes an answer. */
  idleMs: number
}

export type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>

export interface WireSettings {
  allowHttp: boolean
  trust: Trust
  userAgent: string
  log: (line: string) => void
  signal: AbortSignal | undefined
  timeouts: Timeouts
  sleep: Sleep
  random: () => number
}

/** The options with every default filled in. Throws ConfigError `invalid_input` when `ca` holds no certificate. */
export function readSettings(options: WireOptions): WireSettings {
  return {
    allowHttp: options.allowHttp,
    trust: readTrust(options.ca),
    userAgent: options.userAgent,
    log: options.log,
    signal: options.signal,
    timeouts: { connectMs: CONNECT_TIMEOUT_MS, idleMs: IDLE_TIMEOUT_MS, ...options.timeouts },
    sleep: options.sleep ?? ((ms, signal) => delay(ms, undefined, signal === undefined ? {} : { signal })),
    random: options.random ?? Math.random,
  }
}
