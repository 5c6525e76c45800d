import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import type { Log } from '../../core/log.ts'
import { monotonicMs } from '../../core/monotonic.ts'
import { countInWords, listFirst } from '../../core/quantities.ts'
import { asSentence } from '../../core/sentence.ts'
import { isTransientStatus } from '../../net/retries.ts'
import { replaceFile } from '../files/durable-files.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { toHostError } from '../files/system-errors.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import type { Layout } from '../host/layout.ts'
import { readStateFileSync } from '../host/state-file.ts'
import {
  contractOf,
  findAccepted,
  type LocalReport,
  localReportSchema,
  noteAccepted,
  redactReport,
} from './local-report.ts'

const MAX_WAITING = 200
/** In all, where only runs work that are refused before they could send anything. */
const MAX_UNSENT = 400
const MAX_WAITING_DAYS = 30
const DAY_MS = 86_400_000
const OUTBOX_TIMEOUT_MS = 10_000
const MAX_UNANSWERED = 2
/** A hub may lock out who sends it more with credentials that it does not take. */
const MAX_DENIED = 5
/** In one warning. */
const MAX_NAMED = 5

const schema = z.lazy(() => z.object({ schema: z.literal(1), address: z.string(), report: localReportSchema }))

/**
 * What became of a report that was sent. `status` is the hub's answer, null where there was none; `final` means that
 * sending it again would not help, `denied` that it takes other credentials.
 */
export type Delivery =
  | { accepted: true; attempts: number }
  | { accepted: false; attempts: number; status: number | null; error: string; final: boolean; denied?: boolean }

/**
 * A hub's refusal. Its status says whether sending the report again can help: later after a 408, 429 or 5xx, with other
 * credentials after a 401 or 403, otherwise never.
 */
export function refused(status: number, { attempts, error }: { attempts: number; error: string }): Delivery {
  const denied = status === 401 || status === 403
  return { accepted: false, attempts, status, error, final: !denied && !isTransientStatus(status), denied }
}

/**
 * How reports reach the hub, one for each contract. Never throws: reporting changes no outcome (contract 4.3, rule 8).
 */
export interface ReportSender {
  /**
   * Names the hub and the plugin, service or project, and not the credentials: a waiting report goes only where it was
   * meant to go, by any run that may report there.
   */
  readonly address: string
  send(report: LocalReport, limits: ReportLimits): Promise<Delivery>
}

export interface ReportLimits {
  readonly retry: boolean
  /** In all, retries included. */
  readonly timeoutMs: number
  /** Ends it earlier. */
  readonly signal?: AbortSignal | undefined
}

/**
 * Keeps a report that the hub has not accepted, for the next run that talks to the same address, which sends what waits
 * and then drops what is too much. Runs that are refused early send nothing, so they drop it when 400 reports wait.
 */
export async function keepInOutbox(
  { layout, log, redact }: Omit<Outbox, 'sender'>,
  address: string,
  report: LocalReport,
): Promise<void> {
  const text = JSON.stringify({ schema: 1, address, report: redactReport(contractOf(report), redact) }, null, 2)
  await replaceFile(entryPath(layout, report), `${text}\n`)
  if (readdirSync(layout.outbox).length <= MAX_UNSENT) return
  const silent = { layout, log: { ...log, warning: () => {} } }
  dropOld({ layout, log }, readOutbox(silent), new Date(report.completed_at))
}

/** A report of this deployment that waits is not sent again. Never throws. */
export function removeFromOutbox(layout: Layout, report: LocalReport): void {
  tryUnlinkSync(entryPath(layout, report))
}

/** Where reports wait, and who takes them. */
export interface Outbox {
  readonly layout: Layout
  readonly log: Log
  readonly sender: ReportSender
  readonly redact: (text: string) => string
}

interface Waiting {
  readonly path: string
  readonly address: string
  readonly report: LocalReport
}

/**
 * Sends each waiting report of this address once, oldest first, for 10 s in all, and skips what the hub cannot take. A
 * report that is accepted or finally refused leaves the outbox; the local report notes the first. What is refused with
 * 401 or 403 waits for other credentials: after the first of these the newest come next, and after the fifth none. Gives
 * up for this run after a cancel, when the hub asks for patience, or when it does not answer twice in a row. Only then
 * are reports dropped that are older than 30 days, or than the newest 200 of the same address. Never throws: what the
 * disk refuses is a warning.
 */
export async function sendOutbox(outbox: Outbox, signal: AbortSignal, now = new Date()): Promise<void> {
  try {
    const waiting = readOutbox(outbox)
    const own = waiting.filter(({ address }) => address === outbox.sender.address)
    const denial = await sendWaiting(outbox, own, signal)
    if (denial !== undefined) warnOfDenial(outbox, own, denial)
    dropOld(outbox, waiting, now)
  } catch (error) {
    const { message } = toHostError(error, `sending the reports that wait in ${outbox.layout.outbox}`)
    outbox.log.warning(`Later runs try again: ${message}`)
  }
}

/** Returns what the hub says about the credentials, if it refuses them. */
async function sendWaiting(
  outbox: Outbox,
  waiting: readonly Waiting[],
  signal: AbortSignal,
): Promise<string | undefined> {
  const deadline = monotonicMs() + OUTBOX_TIMEOUT_MS
  const queue = [...waiting]
  const denials: string[] = []
  let unanswered = 0
  while (denials.length < MAX_DENIED && unanswered < MAX_UNANSWERED) {
    const next = denials.length === 0 ? queue.shift() : queue.pop()
    const timeoutMs = deadline - monotonicMs()
    if (next === undefined || signal.aborted || timeoutMs < 1) break
    if (wasAccepted(outbox, next)) continue
    const delivery = await outbox.sender.send(next.report, { retry: false, timeoutMs, signal })
    if (signal.aborted && !delivery.accepted) break
    if (isDenied(delivery)) denials.push(delivery.error)
    else await settle(outbox, next, delivery)
    unanswered = isUnanswered(delivery) ? unanswered + 1 : 0
    if (isAskedToWait(delivery)) break
  }
  return denials[0]
}

/** The hub has it already: then it only leaves the outbox. */
function wasAccepted({ layout }: Outbox, { path, report }: Waiting): boolean {
  if (findAccepted(layout, report) === undefined) return false
  tryUnlinkSync(path)
  return true
}

function isDenied(delivery: Delivery): delivery is Extract<Delivery, { accepted: false }> {
  return !delivery.accepted && delivery.denied === true
}

function warnOfDenial({ layout, log }: Outbox, own: readonly Waiting[], denial: string): void {
  const left = own.filter(({ path }) => pathExistsSync(path)).length
  log.warning(
    `The hub does not take waiting reports with the credentials of this run: ${asSentence(denial)} ${left === 1 ? 'One report waits' : `${left} reports wait`} in ${layout.outbox} for a run of the same plugin, service or project with other credentials, for at most ${MAX_WAITING_DAYS} days.`,
  )
}

async function settle(outbox: Outbox, { path, report }: Omit<Waiting, 'address'>, delivery: Delivery): Promise<void> {
  logDelivery(outbox.log, report, delivery)
  if (delivery.accepted) await noteAccepted(outbox, report, delivery.attempts)
  if (!delivery.accepted && !delivery.final) return
  if (!tryUnlinkSync(path))
    outbox.log.warning(`${path} could not be removed, although its report needs no further attempt: remove it.`)
}

function isUnanswered(delivery: Delivery): boolean {
  return !delivery.accepted && delivery.status === null
}

function isAskedToWait(delivery: Delivery): boolean {
  return !delivery.accepted && delivery.status === 429
}

function logDelivery(log: Log, { started_at }: LocalReport, delivery: Delivery): void {
  if (delivery.accepted) log.info(`The hub has now accepted the report of ${started_at}.`)
  else log.warning(`The hub did not accept the report of ${started_at}: ${delivery.error}`)
}

/** Oldest first. What is not a report of ours stays where it is. */
function readOutbox({ layout, log }: Pick<Outbox, 'layout' | 'log'>): Waiting[] {
  const names = readdirSync(layout.outbox).filter(name => name.endsWith('.json'))
  const entries = names.sort().map(name => readWaiting(join(layout.outbox, name)))
  const foreign = entries.flatMap(entry => (typeof entry === 'string' ? [entry] : []))
  if (foreign.length > 0)
    log.warning(
      `Not a report that this action wrote, so it is not sent: ${listFirst(foreign, MAX_NAMED)}. Look at it, then remove it.`,
    )
  return entries.filter(entry => typeof entry !== 'string')
}

/** The path alone when it is no waiting report. */
function readWaiting(path: string): Waiting | string {
  try {
    return { ...schema.parse(JSON.parse(readStateFileSync(path) ?? '')), path }
  } catch {
    return path
  }
}

function dropOld({ layout, log }: Pick<Outbox, 'layout' | 'log'>, waiting: readonly Waiting[], now: Date): void {
  const left = waiting.filter(({ path }) => pathExistsSync(path))
  const byAddress = Map.groupBy(left, ({ address }) => address)
  const excess = new Set([...byAddress.values()].flatMap(entries => entries.slice(0, -MAX_WAITING)))
  const oldest = new Date(now.getTime() - MAX_WAITING_DAYS * DAY_MS).toISOString()
  const dropped = left.filter(entry => excess.has(entry) || entry.report.completed_at < oldest)
  const gone = dropped.filter(({ path }) => tryUnlinkSync(path))
  if (gone.length > 0)
    log.warning(
      `Dropped ${countInWords(gone.length, 'report')} from the outbox ${layout.outbox}: no hub took them in ${MAX_WAITING_DAYS} days, or newer ones fill it. The local reports stay.`,
    )
}

function entryPath(layout: Layout, { started_at, deployment_id }: LocalReport): string {
  return join(layout.outbox, `${started_at.replaceAll(':', '-')}-${deployment_id}.json`)
}
