import { monotonicMs } from '../../core/monotonic.ts'
import { asSentence } from '../../core/sentence.ts'
import { toHostError } from '../files/system-errors.ts'
import { tryUnlinkSync } from '../files/trees/remove-tree.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import type { Redaction } from '../transaction/context.ts'
import { findAccepted, noteAccepted } from './local-report.ts'
import { type Delivery, type ReportSender, refusalVerb, type Undelivered } from './report-sender.ts'
import { MAX_WAITING_DAYS, type OutboxPlace, type WaitingReport, WaitingReports } from './waiting-reports.ts'

const OUTBOX_TIMEOUT_MS = 10_000
const MAX_UNANSWERED = 2
/** A hub may lock out a client that keeps sending rejected credentials. */
const MAX_DENIED = 5

/** The waiting reports, and the sender that sends them until the signal is aborted. */
export interface Outbox extends OutboxPlace {
  readonly sender: ReportSender
  readonly secrets: Redaction
  readonly signal: AbortSignal
}

/**
 * Sends each waiting report for the sender's address once, oldest first, for at most 10 s in total. Continues after a
 * report that the hub does not accept. A report that the hub accepts or refuses for good leaves the outbox. The
 * deployment's local report notes an acceptance.
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
    const own = waiting.of(outbox.sender.address)
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
