import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import type { Log } from '../../core/log.ts'
import { countInWords, listFirst } from '../../core/quantities.ts'
import { replaceFile } from '../files/durable-files.ts'
import { tryUnlinkSync } from '../files/trees/remove-tree.ts'
import { pathExistsSync } from '../files/trees/tree-walk.ts'
import type { Layout } from '../host/layout.ts'
import { readStateFileSync } from '../host/state-file.ts'
import type { Redaction } from '../transaction/context.ts'
import { contractOf, type LocalReport, localReportSchema, redactReport } from './local-report.ts'

const MAX_WAITING = 200
/** The limit across all addresses, in case every run is refused before it can send anything. */
const MAX_UNSENT = 400
/** A report that has waited longer is dropped. */
export const MAX_WAITING_DAYS = 30
const DAY_MS = 86_400_000
/** The limit for one warning. */
const MAX_NAMED = 5

const schema = z.lazy(() => z.object({ schema: z.literal(1), address: z.string(), report: localReportSchema }))

/** The folder in which reports wait, and the log for problems there. */
export interface OutboxPlace {
  readonly layout: Layout
  readonly log: Log
}

/** A report, and its address; see `ReportSender`. */
export interface AddressedReport {
  readonly address: string
  readonly report: LocalReport
}

export interface WaitingReport extends AddressedReport {
  readonly path: string
}

/**
 * The reports that were waiting on a host when they were read, oldest first. Entries that cannot be read as reports
 * stay.
 */
export class WaitingReports {
  readonly #place: OutboxPlace
  readonly #entries: readonly WaitingReport[]
  readonly #foreign: readonly string[]

  constructor(place: OutboxPlace) {
    const { outbox } = place.layout
    const names = readdirSync(outbox).filter(name => name.endsWith('.json'))
    const entries = names.sort().map(name => readWaiting(join(outbox, name)))
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
 * Keeps a report that the hub has not accepted, for the next run that reports to the same address. That run sends the
 * waiting reports, and then drops the excess. A run that is refused early sends nothing, so this function itself drops
 * the excess if more than 400 reports wait.
 */
export async function keepInOutbox(
  { layout, log, secrets }: OutboxPlace & { readonly secrets: Redaction },
  { address, report }: AddressedReport,
): Promise<void> {
  const text = JSON.stringify({ schema: 1, address, report: redactReport(contractOf(report), secrets) }, null, 2)
  await replaceFile(entryPath(layout, report), `${text}\n`)
  if (readdirSync(layout.outbox).length <= MAX_UNSENT) return
  new WaitingReports({ layout, log }).dropOld(new Date(report.completed_at))
}

/** Removes the waiting report of this deployment, so that it is not sent again. Never throws. */
export function removeFromOutbox(layout: Layout, report: LocalReport): void {
  tryUnlinkSync(entryPath(layout, report))
}

/** Returns only the path if the file cannot be read as a waiting report. */
function readWaiting(path: string): WaitingReport | string {
  try {
    return { ...schema.parse(JSON.parse(readStateFileSync(path) ?? '')), path }
  } catch {
    return path
  }
}

function entryPath(layout: Layout, { started_at, deployment_id }: LocalReport): string {
  return join(layout.outbox, `${started_at.replaceAll(':', '-')}-${deployment_id}.json`)
}
