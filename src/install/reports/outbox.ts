import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { type Log, monotonicMs } from '../../core/log.ts'
import { asSentence, countInWords, listFirst } from '../../core/text.ts'
import { replaceFile } from '../files/durable.ts'
import { toHostError } from '../files/errors.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { pathExistsSync } from '../files/walk.ts'
import { byNumber, type Layout, nextNumber } from '../host/layout.ts'
import { readStateFileSync } from '../host/state-file.ts'
import type { Redaction } from '../transaction/record.ts'
import {
  contractOf,
  findAccepted,
  type LocalReport,
  localReportSchema,
  noteAccepted,
  redactReport,
} from './local-report.ts'
import { type Delivery, type ReportSender, refusalVerb, type Undelivered } from './sender.ts'

const OUTBOX_TIMEOUT_MS = 10_000
const MAX_UNANSWERED = 2
/** A hub may lock out a client that keeps sending rejected credentials. */
const MAX_DENIED = 5

/** The waiting reports, and the sender that sends them until the signal is aborted. */
interface Outbox extends OutboxPlace {
  readonly sender: ReportSender
  readonly secrets: Redaction
  readonly signal: AbortSignal
  /** The deployment whose report is sent next: its entry in the outbox may be out of date, so it is left alone. */
  readonly next?: string
}

/**
 * Sends each waiting report for the sender's address once, oldest first, for at most 10 s in total; the order is that
 * in which they were kept. Continues after a report that the hub does not accept. A report that the hub accepts or
 * refuses for good leaves the outbox. The deployment's local report notes an acceptance.
 *
 * A report that is refused with 401 or 403 waits for other credentials. After the first such refusal, the newest
 * reports come next. After the fifth, no more reports are sent. Sending also stops after a cancel, if the hub asks to
 * wait (429), or if the hub fails to answer twice in a row.
 *
 * Afterwards, drops reports that are older than 30 days, and all but the newest 200 of each address. Never throws: file
 * system errors become warnings.
 */
export async function sendOutbox(outbox: Outbox, now = new Date()): Promise<void> {
  try {
    const waiting = new WaitingReports(outbox)
    waiting.warnOfForeign()
    const own = waiting.of(outbox.sender.address).filter(({ report }) => report.deployment_id !== outbox.next)
    const denial = await sendWaiting(outbox, own)
    if (denial !== undefined) outbox.log.warning(describeDenial(denial, leftOf(own, outbox)))
    waiting.dropOld(now)
  } catch (error) {
    const { message } = toHostError(error, `sending the reports that wait in ${outbox.layout.outbox}`)
    outbox.log.warning(`Later runs try again: ${message}`)
  }
}

/** Returns the hub's first refusal of the credentials, if there was one. */
async function sendWaiting(outbox: Outbox, waiting: readonly WaitingReport[]): Promise<string | undefined> {
  const { sender, signal } = outbox
  const deadline = monotonicMs() + OUTBOX_TIMEOUT_MS
  const queue = [...waiting]
  const denials: string[] = []
  let unanswered = 0
  while (denials.length < MAX_DENIED && unanswered < MAX_UNANSWERED) {
    const next = denials.length === 0 ? queue.shift() : queue.pop()
    const timeoutMs = deadline - monotonicMs()
    if (next === undefined || signal.aborted || timeoutMs < 1) break
    if (wasAccepted(outbox, next)) continue
    const delivery = await sender.send(next.report, { retry: false, timeoutMs, signal })
    if (signal.aborted && !delivery.accepted) break
    if (isDenied(delivery)) denials.push(delivery.error)
    else await settle(outbox, { ...next, delivery })
    unanswered = isUnanswered(delivery) ? unanswered + 1 : 0
    if (isAskedToWait(delivery)) break
  }
  return denials[0]
}

/** If the hub already has the report, removes it from the outbox and returns true. */
function wasAccepted({ layout }: Outbox, { path, report }: WaitingReport): boolean {
  if (findAccepted(layout, report) === undefined) return false
  tryUnlinkSync(path)
  return true
}

function isDenied(delivery: Delivery): delivery is Undelivered {
  return !delivery.accepted && delivery.denied === true
}

function describeDenial(denial: string, left: string): string {
  return `The hub does not accept waiting reports with the credentials of this run: ${asSentence(denial)} ${left} for a run of the same plugin, service or project with other credentials, for at most ${MAX_WAITING_DAYS} days.`
}

function leftOf(own: readonly WaitingReport[], { layout }: OutboxPlace): string {
  const left = own.filter(({ path }) => pathExistsSync(path)).length
  return `${left === 1 ? 'One report waits' : `${left} reports wait`} in ${layout.outbox}`
}

/** A waiting report that was sent, and the result. */
interface SentReport extends WaitingReport {
  readonly delivery: Delivery
}

async function settle(outbox: Outbox, sent: SentReport): Promise<void> {
  const { path, report, delivery } = sent
  logDelivery(outbox, sent)
  if (delivery.accepted) await noteAccepted(outbox, report, delivery.attempts)
  if (!delivery.accepted && !delivery.final) return
  if (!tryUnlinkSync(path))
    outbox.log.warning(`${path} could not be removed, although its report needs no further attempt: remove that file.`)
}

function isUnanswered(delivery: Delivery): boolean {
  return !delivery.accepted && delivery.status === null
}

function isAskedToWait(delivery: Delivery): boolean {
  return !delivery.accepted && delivery.status === 429
}

function logDelivery({ log }: OutboxPlace, { report: { started_at }, delivery }: SentReport): void {
  if (delivery.accepted) log.info(`The hub has now accepted the report of the run that started at ${started_at}.`)
  else
    log.warning(
      `The hub ${refusalVerb(delivery)} the report of the run that started at ${started_at}: ${delivery.error}`,
    )
}

const MAX_WAITING = 200
/** The limit across all addresses, in case every run is refused before it can send anything. */
const MAX_UNSENT = 400
/** A report that has waited longer is dropped. */
const MAX_WAITING_DAYS = 30
const DAY_MS = 86_400_000
const MAX_NAMED = 5

const schema = z.lazy(() => z.object({ schema: z.literal(1), address: z.string(), report: localReportSchema }))

/** The folder in which reports wait, and the log for problems there. */
interface OutboxPlace {
  readonly layout: Layout
  readonly log: Log
}

/** A report, and its address; see `ReportSender`. */
export interface AddressedReport {
  readonly address: string
  readonly report: LocalReport
}

interface WaitingReport extends AddressedReport {
  readonly path: string
}

/**
 * The reports that were waiting on a host when they were read, oldest first. Entries that cannot be read as reports
 * stay.
 */
class WaitingReports {
  readonly #place: OutboxPlace
  readonly #entries: readonly WaitingReport[]
  readonly #foreign: readonly string[]

  constructor(place: OutboxPlace) {
    const { outbox } = place.layout
    const names = readdirSync(outbox).filter(name => name.endsWith('.json'))
    const entries = byNumber(names).map(name => readWaiting(join(outbox, name)))
    this.#place = place
    this.#entries = entries.filter(entry => typeof entry !== 'string')
    this.#foreign = entries.filter(entry => typeof entry === 'string')
  }

  warnOfForeign(): void {
    if (this.#foreign.length === 0) return
    this.#place.log.warning(
      `Some entries in the outbox were not sent, because they cannot be read as reports of this action: ${listFirst(this.#foreign, MAX_NAMED)}. Inspect and remove them.`,
    )
  }

  of(address: string): readonly WaitingReport[] {
    return this.#entries.filter(entry => entry.address === address)
  }

  /** Drops the waiting reports that are older than 30 days, and all but the newest 200 of each address. */
  dropOld(now: Date): void {
    const { layout, log } = this.#place
    const left = this.#entries.filter(({ path }) => pathExistsSync(path))
    const byAddress = Map.groupBy(left, ({ address }) => address)
    const excess = new Set([...byAddress.values()].flatMap(entries => entries.slice(0, -MAX_WAITING)))
    const oldest = new Date(now.getTime() - MAX_WAITING_DAYS * DAY_MS).toISOString()
    const dropped = left.filter(entry => excess.has(entry) || entry.report.completed_at < oldest)
    const gone = dropped.filter(({ path }) => tryUnlinkSync(path))
    if (gone.length > 0)
      log.warning(
        `Dropped ${countInWords(gone.length, 'report')} from the outbox ${layout.outbox}, which keeps reports for ${MAX_WAITING_DAYS} days, and at most ${MAX_WAITING} of one plugin, service or project for one hub. Local reports stay.`,
      )
  }
}

/**
 * Keeps a report that the hub has not accepted, after all that wait already, for the next run that reports to the same
 * address. A report of the same deployment that waits already is replaced and keeps its place. That run sends the
 * waiting reports, and then drops the excess. A run that is refused early sends nothing, so this function itself drops
 * the excess if more than 400 reports wait.
 */
export async function keepInOutbox(
  { layout, log, secrets }: OutboxPlace & { readonly secrets: Redaction },
  { address, report }: AddressedReport,
): Promise<void> {
  const text = JSON.stringify({ schema: 1, address, report: redactReport(contractOf(report), secrets) }, null, 2)
  const names = readdirSync(layout.outbox)
  const name = names.find(isOf(report)) ?? `${nextNumber(names)}-${report.deployment_id}.json`
  await replaceFile(join(layout.outbox, name), `${text}\n`)
  if (names.length < MAX_UNSENT) return
  new WaitingReports({ layout, log }).dropOld(new Date(report.completed_at))
}

/** Removes the waiting report of this deployment, so that it is not sent again. Never throws. */
export function removeFromOutbox({ outbox }: Layout, report: LocalReport): void {
  try {
    for (const name of readdirSync(outbox).filter(isOf(report))) tryUnlinkSync(join(outbox, name))
  } catch {
    // The next run finds in the local report that the hub has this report, and removes the entry.
  }
}

/** Returns only the path if the file cannot be read as a waiting report. */
function readWaiting(path: string): WaitingReport | string {
  try {
    return { ...schema.parse(JSON.parse(readStateFileSync(path) ?? '')), path }
  } catch {
    return path
  }
}

/** True for the name of this deployment's entry. */
function isOf({ deployment_id: id }: LocalReport): (name: string) => boolean {
  return name => name.endsWith(`-${id}.json`)
}
