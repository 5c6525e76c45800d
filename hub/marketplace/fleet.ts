import { z } from 'zod'
import { kindSchema, statusSchema } from '../names.ts'
import { HOST, newest } from '../schema.ts'
import { inTransaction, type Store } from '../store.ts'

export const ROWS_ON_A_PAGE = 100
const MAX_FILTER_CHARS = 200
const MAX_FILTER_WORDS = 8
const MAX_LISTINGS_COUNTED = 6
const MAX_VERSIONS_COUNTED = 4
const MAX_MESSAGE_CHARS = 2000

/** A visitor's filter for the page. */
export interface FleetFilter {
  /** Words. Each must occur in the host's id, the slug, the kind, or the running or attempted version. */
  readonly text: string
  readonly onlyAttention: boolean
  /** Starts at 1. */
  readonly page: number
}

const rowSchema = z.object({
  kind: kindSchema,
  slug: z.string(),
  deployer_id: z.string(),
  host_id: z.string(),
  /** True if this hub ever published a version under this kind and slug. */
  is_known: z.number().transform(value => value === 1),
  attempted_version: z.string(),
  status: statusSchema,
  completed_at: z.string(),
  error_message: z.string().nullable(),
  /** The running version, which is the version of the newest success; null if no deployment ever succeeded. */
  running_version: z.string().nullable(),
  running_since: z.string().nullable(),
})

/** A plugin or service on a host: the running version, and the last attempt. */
export type FleetRow = z.infer<typeof rowSchema>

/** The number of hosts with a plugin or service, in total and for each of the versions that run on the most hosts. */
export interface ListingCount {
  readonly kind: string
  readonly slug: string
  readonly hosts: number
  readonly versions: readonly { readonly version: string | null; readonly hosts: number }[]
}

export interface FleetCounts {
  readonly hosts: number
  readonly hostsThatNeedAttention: number
  readonly owners: number
  /** The number of reported plugins and services that this hub never published. */
  readonly unknown: number
  /** The published plugins and services with the most hosts. `moreListings` is the number of the others. */
  readonly listings: readonly ListingCount[]
  readonly moreListings: number
}

export interface FleetView {
  /** The applied filter. Its `page` exists, even if the wanted page does not. */
  readonly filter: FleetFilter
  readonly rows: readonly FleetRow[]
  readonly matching: number
  readonly pages: number
  /** The counts for the whole fleet. */
  readonly counts: FleetCounts
}

/**
 * Reads a page of the fleet of all owners. Rows that need attention come first. Both groups are in natural order of
 * hosts.
 */
export function readFleet(store: Store, wanted: FleetFilter): FleetView {
  catchUpWithReports(store)
  const text = wanted.text.slice(0, MAX_FILTER_CHARS)
  const words = searchable(text).split(/\s+/).filter(Boolean).slice(0, MAX_FILTER_WORDS)
  const condition = [
    ...(wanted.onlyAttention ? ['needs_attention = 1'] : []),
    ...words.map(() => 'instr(words, ?) > 0'),
    'TRUE',
  ].join(' AND ')
  const matching = count(store, `FROM fleet WHERE ${condition}`, words)
  const pages = Math.max(1, Math.ceil(matching / ROWS_ON_A_PAGE))
  const page = Math.min(wanted.page, pages)
  const rows = store.db.prepare(rowsOf(condition)).all(...words, ROWS_ON_A_PAGE, (page - 1) * ROWS_ON_A_PAGE)
  return {
    filter: { text, onlyAttention: wanted.onlyAttention, page },
    rows: rows.map(row => rowSchema.parse(row)),
    matching,
    pages,
    counts: countFleet(store),
  }
}

const ORDER = ['needs_attention DESC', 'host_order', 'host_id', 'kind', 'slug', 'deployer_id'].map(by => `fleet.${by}`)
const IS_KNOWN = 'EXISTS (SELECT 1 FROM listings WHERE listings.kind = fleet.kind AND listings.slug = fleet.slug)'

/** SQL that reads only the reports of the rows on the page. */
function rowsOf(condition: string): string {
  return `SELECT fleet.kind, fleet.slug, fleet.deployer_id, fleet.host_id, ${IS_KNOWN} AS is_known,
                 last.version AS attempted_version, last.status, last.completed_at,
                 substr(last.error_message, 1, ${MAX_MESSAGE_CHARS}) AS error_message,
                 good.version AS running_version, good.completed_at AS running_since
          FROM (SELECT * FROM fleet WHERE ${condition} ORDER BY ${ORDER} LIMIT ? OFFSET ?) AS fleet
          JOIN reports AS last ON last.seq = fleet.newest_seq
          LEFT JOIN reports AS good ON good.seq = fleet.success_seq
          ORDER BY ${ORDER}`
}

function countFleet(store: Store): FleetCounts {
  const hosts = 'FROM (SELECT DISTINCT deployer_id, host_id FROM fleet'
  const listings = 'FROM (SELECT kind, slug, count(*) AS hosts FROM fleet GROUP BY kind, slug) AS fleet'
  const known = store.db
    .prepare(`SELECT kind, slug, hosts ${listings} WHERE ${IS_KNOWN} ORDER BY hosts DESC, slug, kind LIMIT ?`)
    .all(MAX_LISTINGS_COUNTED)
  const counted = known.map(row => countVersions(store, listingSchema.parse(row)))
  return {
    hosts: count(store, `${hosts})`),
    hostsThatNeedAttention: count(store, `${hosts} WHERE needs_attention = 1)`),
    owners: count(store, 'FROM (SELECT DISTINCT deployer_id FROM fleet)'),
    unknown: count(store, `${listings} WHERE NOT ${IS_KNOWN}`),
    listings: counted,
    moreListings: count(store, `${listings} WHERE ${IS_KNOWN}`) - counted.length,
  }
}

const listingSchema = z.object({ kind: z.string(), slug: z.string(), hosts: z.number() })
const versionCountSchema = z.object({ version: z.string().nullable(), hosts: z.number() })

function countVersions(store: Store, listing: z.infer<typeof listingSchema>): ListingCount {
  const rows = store.db
    .prepare(
      `SELECT running_version AS version, count(*) AS hosts FROM fleet WHERE kind = ? AND slug = ?
       GROUP BY running_version ORDER BY hosts DESC, running_version DESC LIMIT ?`,
    )
    .all(listing.kind, listing.slug, MAX_VERSIONS_COUNTED)
  return { ...listing, versions: rows.map(row => versionCountSchema.parse(row)) }
}

function count({ db }: Store, from: string, values: readonly string[] = []): number {
  return Number(db.prepare(`SELECT count(*) AS found ${from}`).get(...values)?.['found'])
}

/** Hubs that used another name ordered reports differently, so this hub applies all reports once more. */
const APPLIED = 'fleet_seq_by_arrival'
const BATCH = 10_000

/** Applies the reports that are not applied yet, such as those from an older hub. Usually reads only two numbers. */
export function catchUpWithReports(store: Store): void {
  if (newestReport(store) > appliedReport(store)) inTransaction(store, () => applyReports(store))
}

/** Applies all reports since the last applied one. Must run in a transaction. */
export function applyReports({ db }: Pick<Store, 'db'>): void {
  const last = newestReport({ db })
  const hosts = db.prepare(`SELECT DISTINCT ${HOST.join(', ')} FROM reports WHERE seq > ? AND seq <= ?`)
  const [read, save] = [db.prepare(STATE_OF_HOST), db.prepare(SAVE)]
  for (let from = appliedReport({ db }); from < last; from += BATCH) {
    const rows = hosts.all(from, from + BATCH)
    for (const host of rows.map(row => hostSchema.parse(row)))
      save.run(fleetRow(host, stateSchema.parse(read.get(host))))
  }
  db.prepare('INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)').run(APPLIED, String(last))
}

/**
 * Removes hosts whose reports were all pruned, and updates hosts that lost their newest report. Must run in a
 * transaction.
 */
export function applyPruning({ db }: Pick<Store, 'db'>): void {
  const pruned = db.prepare(`SELECT ${HOST.join(', ')} FROM fleet WHERE newest_seq NOT IN (SELECT seq FROM reports)`)
  const [read, save] = [db.prepare(STATE_OF_HOST), db.prepare(SAVE)]
  const forget = db.prepare(`DELETE FROM fleet WHERE ${HOST.map(name => `${name} = :${name}`).join(' AND ')}`)
  for (const host of pruned.all().map(row => hostSchema.parse(row))) {
    const state = read.get(host)
    if (state === undefined) forget.run(host)
    else save.run(fleetRow(host, stateSchema.parse(state)))
  }
}

/** The form in which a filter compares texts. */
function searchable(text: string): string {
  return text.normalize('NFC').toLowerCase()
}

const hostSchema = z.object({ kind: z.string(), slug: z.string(), deployer_id: z.string(), host_id: z.string() })

const stateSchema = z.object({
  newest_seq: z.number(),
  attempted_version: z.string(),
  needs_attention: z.number(),
  success_seq: z.number().nullable(),
  running_version: z.string().nullable(),
})

function fleetRow(host: z.infer<typeof hostSchema>, { attempted_version, ...state }: z.infer<typeof stateSchema>) {
  const words = [host.host_id, host.slug, host.kind, attempted_version, state.running_version ?? ''].join('\n')
  return { ...host, ...state, words: searchable(words), host_order: naturalOrder(host.host_id) }
}

const STATE_OF_HOST = `
  SELECT last.seq AS newest_seq, last.version AS attempted_version, last.status <> 'success' AS needs_attention,
         good.seq AS success_seq, good.version AS running_version
  FROM (SELECT :kind AS kind, :slug AS slug, :deployer_id AS deployer_id, :host_id AS host_id) AS hosts
  JOIN reports AS last ON last.seq = (${newest('seq', 'hosts')})
  LEFT JOIN reports AS good ON good.seq = (${newest('seq', 'hosts', { isSuccess: true })})`

const SAVE = `
  INSERT OR REPLACE INTO fleet (kind, slug, deployer_id, host_id, host_order, words, needs_attention, newest_seq,
                                success_seq, running_version)
  VALUES (:kind, :slug, :deployer_id, :host_id, :host_order, :words, :needs_attention, :newest_seq,
          :success_seq, :running_version)`

/** A key that sorts app-2 before app-10: each number is preceded by its length. */
function naturalOrder(name: string): string {
  return searchable(name).replace(/\d+/g, digits => {
    const number = digits.replace(/^0+(?=\d)/, '')
    return `${String(number.length).padStart(3, '0')}${number}`
  })
}

function newestReport({ db }: Pick<Store, 'db'>): number {
  return Number(db.prepare('SELECT max(seq) AS seq FROM reports').get()?.['seq'] ?? 0)
}

function appliedReport({ db }: Pick<Store, 'db'>): number {
  return Number(db.prepare('SELECT value FROM settings WHERE name = ?').get(APPLIED)?.['value'] ?? 0)
}
