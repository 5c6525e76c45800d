import { z } from 'zod'
import { HubError } from '../errors.ts'
import { type Kind, kindSchema } from '../names.ts'
import { inTransaction, type Store } from '../store.ts'
import { newestFirst } from '../version-order.ts'

/** Identifies a plugin or service (contract 2.1). */
export interface ListingId {
  readonly kind: Kind
  readonly slug: string
}

/** Identifies one version of a plugin or service. */
export interface VersionId extends ListingId {
  readonly version: string
}

const publishedVersionSchema = z.object({
  kind: kindSchema,
  slug: z.string(),
  version: z.string(),
  sha256: z.string(),
  size: z.number(),
  signature: z.string(),
  repo: z.string().nullable(),
  published_at: z.string(),
  yanked_at: z.string().nullable(),
})
export type PublishedVersion = z.infer<typeof publishedVersionSchema>

/** A plugin or service with its versions, newest first. */
export interface Listing extends ListingId {
  readonly name: string
  readonly versions: PublishedVersion[]
}

const listingRowSchema = z.object({ kind: kindSchema, slug: z.string(), name: z.string() })
type ListingRow = z.infer<typeof listingRowSchema>

interface AddOptions {
  /** The listing's display name. Default: the name that it has; for a new listing, the slug. */
  readonly name: string | undefined
  /** Lets a published version get other bytes. */
  readonly replace: boolean
}

/** Throws HubError 404 when nothing was ever published under this kind and slug. */
export function readListing(store: Store, { kind, slug }: ListingId): Listing {
  const row = store.db.prepare('SELECT kind, slug, name FROM listings WHERE kind = ? AND slug = ?').get(kind, slug)
  if (row === undefined) throw new HubError(404, `This hub has no ${kind} ${JSON.stringify(slug)}.`)
  return withVersions(store, listingRowSchema.parse(row))
}

export function listCatalogue(store: Store): Listing[] {
  const rows = store.db.prepare('SELECT kind, slug, name FROM listings ORDER BY kind, slug').all()
  return rows.map(row => withVersions(store, listingRowSchema.parse(row)))
}

/** The newest version that is not yanked, or null when there is none. */
export function latestVersion(listing: Listing): string | null {
  return listing.versions.find(isServed)?.version ?? null
}

/** The version to serve; `latest` means the newest. Throws HubError 404 when it was never published or was yanked. */
export function chooseVersion(listing: Listing, wanted: string): PublishedVersion {
  const version = wanted === 'latest' ? latestVersion(listing) : wanted
  const found = listing.versions.find(candidate => candidate.version === version)
  if (found !== undefined && isServed(found)) return found
  const state = found === undefined ? 'was never published' : 'was yanked'
  throw new HubError(404, `Version ${JSON.stringify(wanted)} of the ${listing.kind} ${listing.slug} ${state}.`)
}

/** Throws HubError 409 when the version is already published with other bytes or another signature. */
export function requireUnchanged(store: Store, version: PublishedVersion): void {
  const existing = findVersion(store, version)
  if (existing !== undefined && !isSame(existing, version)) throw alreadyPublished(existing)
}

/**
 * Adds a version. A published version is immutable unless `replace` is set: throws HubError 409 as requireUnchanged
 * does. Adding the same version again changes nothing.
 */
export function addVersion(store: Store, version: PublishedVersion, { name, replace }: AddOptions): void {
  inTransaction(store, () => {
    if (!replace) requireUnchanged(store, version)
    saveListing(store, { ...version, name })
    if (replace || findVersion(store, version) === undefined) saveVersion(store, version)
  })
}

/** Stops serving the version, which stays listed. Throws HubError 404 when it was never published. */
export function yankVersion(store: Store, { kind, slug, version }: VersionId): void {
  const { changes } = store.db
    .prepare('UPDATE versions SET yanked_at = coalesce(yanked_at, ?) WHERE kind = ? AND slug = ? AND version = ?')
    .run(new Date().toISOString(), kind, slug, version)
  if (Number(changes) === 0) throw new HubError(404, `The ${kind} ${slug} has no version ${JSON.stringify(version)}.`)
}

function isServed(version: PublishedVersion): boolean {
  return version.yanked_at === null
}

function withVersions(store: Store, row: ListingRow): Listing {
  return { ...row, versions: newestFirst(findVersions(store, row)) }
}

function findVersion(store: Store, wanted: VersionId): PublishedVersion | undefined {
  return findVersions(store, wanted).find(({ version }) => version === wanted.version)
}

function isSame(a: PublishedVersion, b: PublishedVersion): boolean {
  return a.sha256 === b.sha256 && a.signature === b.signature
}

function findVersions(store: Store, { kind, slug }: ListingId): PublishedVersion[] {
  const rows = store.db.prepare('SELECT * FROM versions WHERE kind = ? AND slug = ?').all(kind, slug)
  return rows.map(row => publishedVersionSchema.parse(row))
}

function saveListing(store: Store, { kind, slug, name }: ListingId & Pick<AddOptions, 'name'>): void {
  const onConflict = name === undefined ? 'NOTHING' : 'UPDATE SET name = excluded.name'
  store.db
    .prepare(`INSERT INTO listings (kind, slug, name) VALUES (?, ?, ?) ON CONFLICT DO ${onConflict}`)
    .run(kind, slug, name ?? slug)
}

function saveVersion(store: Store, version: PublishedVersion): void {
  store.db
    .prepare(
      `INSERT OR REPLACE INTO versions (kind, slug, version, sha256, size, signature, repo, published_at, yanked_at)
       VALUES (:kind, :slug, :version, :sha256, :size, :signature, :repo, :published_at, :yanked_at)`,
    )
    .run(version)
}

function alreadyPublished({ kind, slug, version, sha256 }: PublishedVersion): HubError {
  return new HubError(
    409,
    `Version ${version} of the ${kind} ${slug} is already published with other bytes or another signing secret (SHA-256 ${sha256}): publish a new version, or replace this one.`,
  )
}
