import { lookup } from 'node:dns'
import { networkInterfaces } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { CONNECT_TIMEOUT_MS, IDLE_TIMEOUT_MS } from './limits.ts'
import { AddressPolicy, type AddressSources } from './policy/address-policy.ts'
import { readTrust, type Trust } from './policy/trust.ts'

export interface WireOptions {
  /** Accepts plain http for any host, not only for loopback addresses. */
  allowHttp: boolean
  /** PEM text of authorities to trust in addition to the built-in ones. */
  ca?: string
  userAgent: string
  /** Gets one clean line for each retry and each redirect. */
  log: (line: string) => void
  /** Cancels all requests in progress, which then reject with the signal's reason. */
  signal?: AbortSignal
  timeouts?: Partial<Timeouts>
  sleep?: Sleep
  startTimer?: StartTimer
  /** At least 0 and below 1; for the jitter. */
  random?: () => number
  addresses?: Partial<AddressSources>
}

export interface Timeouts {
  /** The limit for name lookup, proxy, TCP and TLS together. */
  connectMs: number
  /** The time for which a server may stay silent while this client waits for it. */
  idleMs: number
}

export type Sleep = (ms: number, signal?: AbortSignal) => Promise<void>

/** Calls `expire` after `ms` milliseconds, unless the returned function is called first. */
export type StartTimer = (ms: number, expire: () => void) => () => void

export interface WireSettings {
  allowHttp: boolean
  trust: Trust
  userAgent: string
  log: (line: string) => void
  /** If the caller gave none, a signal that is never aborted. */
  signal: AbortSignal
  timeouts: Timeouts
  sleep: Sleep
  startTimer: StartTimer
  random: () => number
  addresses: AddressPolicy
}

/** Fills in every default. Throws ConfigError `invalid_input` if `ca` contains no certificate or a damaged one. */
export function readSettings(options: WireOptions): WireSettings {
  return {
    allowHttp: options.allowHttp,
    trust: readTrust(options.ca),
    userAgent: options.userAgent,
    log: options.log,
    signal: options.signal ?? new AbortController().signal,
    timeouts: { connectMs: CONNECT_TIMEOUT_MS, idleMs: IDLE_TIMEOUT_MS, ...options.timeouts },
    sleep: options.sleep ?? ((ms, signal) => delay(ms, undefined, signal === undefined ? {} : { signal })),
    startTimer: options.startTimer ?? startTimer,
    random: options.random ?? Math.random,
    addresses: new AddressPolicy({ resolve: lookup, ownAddresses, ...options.addresses }),
  }
}

function ownAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap(found => (found ?? []).map(({ address }) => address))
}

function startTimer(ms: number, expire: () => void): () => void {
  const timer = setTimeout(expire, ms)
  return () => clearTimeout(timer)
}
