import { lookup } from 'node:dns'
import { networkInterfaces } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import type { ArtifactError } from '../core/errors.ts'
import { AddressPolicy, type AddressSources, readTrust, type Trust } from './policy.ts'

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

interface Timeouts {
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
  /**
   * Why a proxy refused this run's credentials, by the variable that names it. They are not sent again, because some
   * proxies lock an account after a few attempts.
   */
  proxyRefusals: Map<string, ArtifactError>
}

/** Fills in every default. Throws ConfigError `invalid_input` if `ca` contains no certificate or a damaged one. */
export function buildWireSettings(options: WireOptions): WireSettings {
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
    proxyRefusals: new Map(),
  }
}

function ownAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap(found => (found ?? []).map(({ address }) => address))
}

function startTimer(ms: number, expire: () => void): () => void {
  const timer = setTimeout(expire, ms)
  return () => clearTimeout(timer)
}

/** A wire's `timeouts` option may replace these two. */
const CONNECT_TIMEOUT_MS = 10_000
const IDLE_TIMEOUT_MS = 30_000
export const MAX_REDIRECTS = 5
/** Attempts after the first one. */
export const MAX_RETRIES = 3
/**
 * An attempt that leaves this many bytes more than any earlier one, for the next attempt to continue, is not counted as
 * one of those.
 */
export const UNCOUNTED_BYTES = 1024 * 1024
/** The n-th wait is random, at most base * 2^(n-1), and at most the cap, unless `Retry-After` asks for more. */
export const BACKOFF_BASE_MS = 500
export const BACKOFF_CAP_MS = 8_000
export const RETRY_AFTER_CAP_MS = 30_000
/** The maximum length of a quotation from an answer's body in a message. */
export const MAX_QUOTED_BODY_CHARS = 2048

const MAX_REASON_CHARS = 4000

/** The fields of a refusal's JSON body that may give its reason, the most important first. */
type ReasonFields = readonly [error: unknown, detail: unknown, message: unknown]

/** Reads `error`, `detail` and `message` of a JSON object, and ignores anything else that a server may answer with. */
export function readReasonFields(body: unknown): ReasonFields {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return [undefined, undefined, undefined]
  const { error, detail, message } = body as Record<string, unknown>
  return [error, detail, message]
}

/**
 * Returns at most MAX_REASON_CHARS of a reason as text, not cleaned; undefined for an empty one. A reason that is not
 * text, which some frameworks send, becomes JSON.
 */
export function reasonText(field: unknown): string | undefined {
  if (field === undefined || field === null || field === '') return undefined
  return (typeof field === 'string' ? field : JSON.stringify(field)).slice(0, MAX_REASON_CHARS)
}
