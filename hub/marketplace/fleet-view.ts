import { z } from 'zod'
import { kindSchema } from '../names.ts'
import { statusSchema } from '../report-fields.ts'
import type { Store } from '../store.ts'
import { catchUpWithReports, searchable } from './fleet.ts'

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
const versionSchema = z.object({ version: z.string().nullable(), hosts: z.number() })

function countVersions(store: Store, listing: z.infer<typeof listingSchema>): ListingCount {
  const rows = store.db
    .prepare(
      `SELECT running_version AS version, count(*) AS hosts FROM fleet WHERE kind = ? AND slug = ?
       GROUP BY running_version ORDER BY hosts DESC, running_version DESC LIMIT ?`,
    )
    .all(listing.kind, listing.slug, MAX_VERSIONS_COUNTED)
  return { ...listing, versions: rows.map(row => versionSchema.parse(row)) }
}

function count({ db }: Store, from: string, values: readonly string[] = []): number {
  return Number(db.prepare(`SELECT count(*) AS found ${from}`).get(...values)?.['found'])
}
