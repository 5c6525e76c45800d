import { readdirSync, readFileSync, unlinkSync } from 'node:fs'
import { join } from 'node:path'
import { performance } from 'node:perf_hooks'
import { z } from 'zod/mini'
import type { Log } from '../../core/log.ts'
import { replaceFile } from '../files/durable-files.ts'
import type { Layout } from '../host/layout.ts'
import { type LocalReport, localReportSchema, type ReportFolder, redactReport } from './local-report.ts'

const MAX_WAITING = 200
const OUTBOX_TIMEOUT_MS = 10_000

const schema = z.lazy(() => z.object({ schema: z.literal(1), address: z.string(), report: localReportSchema }))

/**
 * What became of a report that was sent. `status` is the hub's answer, null where there was none; `final` means that
 * sending it again would not help.
 */
export type Delivery =
  | { accepted: true; attempts: number }
  | { accepted: false; attempts: number; status: number | null; error: string; final: boolean }

/**
 * How reports reach the hub, one for each contract. Never throws: reporting changes no outcome (contract 4.3, rule 8).
 */
export interface ReportSender {
  /** Names the hub and the subject of the credentials: a waiting report goes only where it was meant to go. */
  readonly address: string
  send(report: LocalReport, options: { retry: boolean; timeoutMs: number }): Promise<Delivery>
}

/** Keeps a report that the hub has not accepted, for the next run that talks to the same address. */
export async function keepInOutbox(
  { layout, redact }: ReportFolder,
  address: string,
  report: LocalReport,
): Promise<void> {
  const text = JSON.stringify({ schema: 1, address, report: redactReport(report, redact) }, null, 2)
  await replaceFile(
    join(layout.outbox, `${report.started_at.replaceAll(':', '-')}-${report.deployment_id}.json`),
    `${text}\n`,
  )
}

/** Where reports wait, and who takes them. */
export interface Outbox {
  readonly layout: Layout
  readonly log: Log
  readonly sender: ReportSender
}

/**
 * Sends each waiting report of this address once, oldest first, for 10 s in all. A report that is accepted or finally
 * refused leaves the outbox. After the first that cannot be delivered, or a cancel, the rest wait for the next run.
 */
export async function sendOutbox({ layout, log, sender }: Outbox, signal: AbortSignal): Promise<void> {
  const deadline = performance.now() + OUTBOX_TIMEOUT_MS
  const names = readdirSync(layout.outbox)
    .filter(name => name.endsWith('.json'))
    .sort()
  dropOldest(layout, names, log)
  for (const name of names.slice(-MAX_WAITING)) {
    const path = join(layout.outbox, name)
    const waiting = readWaiting(path)
    if (waiting === undefined) {
      log.warning(`${path} is not a report that this action wrote: it stays where it is.`)
      continue
    }
    if (waiting.address !== sender.address) continue
    const timeoutMs = deadline - performance.now()
    if (signal.aborted || timeoutMs < 1) return
    const delivery = await sender.send(waiting.report, { retry: false, timeoutMs })
    logDelivery(log, waiting.report, delivery)
    if (!delivery.accepted && !delivery.final) return
    unlinkSync(path)
  }
}

function logDelivery(log: Log, { started_at }: LocalReport, delivery: Delivery): void {
  if (delivery.accepted) log.info(`The hub has now accepted the report of ${started_at}.`)
  else log.warning(`The hub did not accept the report of ${started_at}: ${delivery.error}`)
}

function readWaiting(path: string): z.infer<typeof schema> | undefined {
  try {
    return schema.parse(JSON.parse(readFileSync(path, 'utf8')))
  } catch {
    return undefined
  }
}

function dropOldest(layout: Layout, names: readonly string[], log: Log): void {
  const excess = names.slice(0, Math.max(0, names.length - MAX_WAITING))
  for (const name of excess) unlinkSync(join(layout.outbox, name))
  if (excess.length > 0)
    log.warning(`${excess.length} reports older than the newest ${MAX_WAITING} were dropped from the outbox.`)
}
