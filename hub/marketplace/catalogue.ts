import { z } from 'zod'
import { HubError } from '../errors.ts'
import { type Kind, kindSchema, newestFirst, withoutV } from '../names.ts'
import { inTransaction, type Store } from '../store.ts'

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
  /** The time at which the version was held back for review; null if it is not held back. */
  held_at: z.string().nullable(),
  yanked_at: z.string().nullable(),
})
export type PublishedVersion = z.infer<typeof publishedVersionSchema>

/** A plugin or service with its versions, newest first. */
export interface Listing extends ListingId {
  readonly name: string
  /** True if only keys that may fetch it, and the administrator, may see it. */
  readonly is_private: boolean
  readonly versions: PublishedVersion[]
}

const listingRowSchema = z.object({
  kind: kindSchema,
  slug: z.string(),
  name: z.string(),
  is_private: z.number().transform(value => value === 1),
})
const LISTINGS = `SELECT kind, slug, name, EXISTS (SELECT 1 FROM private_listings AS private
  WHERE private.kind = listings.kind AND private.slug = listings.slug) AS is_private FROM listings`
type ListingRow = z.infer<typeof listingRowSchema>

interface AddOptions {
  /** The listing's display name. Default: its current name, or the slug for a new listing. */
  readonly name: string | undefined
  /** Whether the listing is private from now on. Default: as before, and public for a new listing. */
  readonly isPrivate?: boolean | undefined
  /** Replaces a version that is already published, unless it was yanked. */
  readonly replace: boolean
}

/** Throws HubError 404 if nothing was ever published under this kind and slug. */
export function readListing(store: Store, { kind, slug }: ListingId): Listing {
  const row = store.db.prepare(`${LISTINGS} WHERE kind = ? AND slug = ?`).get(kind, slug)
  if (row === undefined) throw noListing({ kind, slug })
  return withVersions(store, listingRowSchema.parse(row))
}

/** The error for a listing that does not exist, or that the client may not see. */
export function noListing({ kind, slug }: ListingId): HubError {
  return new HubError(404, `This hub has no ${kind} ${JSON.stringify(slug)}.`)
}

/** True if a version was ever published under this kind and slug. */
export function isListed(store: Store, { kind, slug }: ListingId): boolean {
  return store.db.prepare('SELECT 1 FROM listings WHERE kind = ? AND slug = ?').get(kind, slug) !== undefined
}

export function listCatalogue(store: Store): Listing[] {
  const rows = store.db.prepare(`${LISTINGS} ORDER BY kind, slug`).all()
  return rows.map(row => withVersions(store, listingRowSchema.parse(row)))
}

/** The listings of a kind whose slugs or names contain every word of `search`, in the order of their slugs. */
export function searchCatalogue(store: Store, kind: Kind, search: string): Listing[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean)
  const isFound = ({ slug, name }: Listing): boolean =>
    words.every(word => `${slug}\n${name}`.toLowerCase().includes(word))
  return listCatalogue(store).filter(listing => listing.kind === kind && isFound(listing))
}

/** `published` if some version is served, else `held_back` if some version waits for review, else `yanked`. */
export function publishStatus({ versions }: Listing): 'published' | 'held_back' | 'yanked' {
  const states = new Set(versions.map(stateOf))
  if (states.has('served')) return 'published'
  return states.has('held back') ? 'held_back' : 'yanked'
}

/** The newest version that is not yanked, even if it is held back for review; null if there is none. */
export function latestVersion(listing: Listing): string | null {
  return listing.versions.find(version => stateOf(version) !== 'yanked')?.version ?? null
}

/**
 * Returns the version to serve; `latest` means the newest version that is served. Throws HubError 404 if the wanted
 * version was never published, is held back for review, or was yanked.
 */
export function chooseVersion(listing: Listing, wanted: string): PublishedVersion {
  const isWanted = (candidate: PublishedVersion) => wanted === 'latest' || candidate.version === wanted
  const found = listing.versions.find(candidate => isWanted(candidate) && stateOf(candidate) === 'served')
  if (found !== undefined) return found
  const name = `the ${listing.kind} ${listing.slug}`
  if (wanted === 'latest') throw new HubError(404, `This hub serves no version of ${name}.`)
  const refused = listing.versions.find(isWanted)
  const reason = refused === undefined ? 'was never published' : REASONS[stateOf(refused)]
  throw new HubError(404, `Version ${JSON.stringify(wanted)} of ${name} ${reason}.`)
}

export type VersionState = 'served' | 'held back' | 'yanked'

const REASONS: Readonly<Record<VersionState, string>> = {
  served: 'is served',
  'held back': 'is held back for review',
  yanked: 'was yanked',
}

export function stateOf({ held_at, yanked_at }: Pick<PublishedVersion, 'held_at' | 'yanked_at'>): VersionState {
  if (yanked_at !== null) return 'yanked'
  return held_at === null ? 'served' : 'held back'
}

/**
 * Throws HubError 409 if the version was yanked, or is already published with or without a leading `v`: hosts take the
 * two for one version. Without `replace`, also throws it if the version is already published with different bytes or
 * another signature.
 */
export function requirePublishable(store: Store, version: PublishedVersion, replace: boolean): void {
  requireNotYanked(store, version)
  requireOneSpelling(store, version)
  const existing = findVersion(store, version)
  if (!replace && existing !== undefined && !isSame(existing, version)) throw alreadyPublished(existing, version)
}

/**
 * Adds a version, and returns it as it is now published. A published version is immutable unless `replace` is set:
 * throws HubError 409 as requirePublishable does. A version that is held back stays held back. Adding the same version
 * again without `replace` changes at most the listing's name and privacy.
 */
export function addVersion(
  store: Store,
  version: PublishedVersion,
  { name, isPrivate, replace }: AddOptions,
): PublishedVersion {
  return inTransaction(store, () => {
    requirePublishable(store, version, replace)
    saveListing(store, { ...version, name })
    if (isPrivate !== undefined) savePrivacy(store, version, isPrivate)
    const existing = findVersion(store, version)
    if (existing !== undefined && !replace) return existing
    return saveVersion(store, { ...version, held_at: existing?.held_at ?? null })
  })
}

/** Permanently stops serving the version. Throws HubError 404 if it was never published. */
export function yankVersion(store: Store, id: VersionId): void {
  changeVersion(store, id, { column: 'yanked_at', value: new Date().toISOString() })
}

/**
 * Holds the version back until it is released. It stays listed, even as the latest. Throws as yankVersion does, and
 * HubError 409 if it was yanked.
 */
export function holdVersion(store: Store, id: VersionId): void {
  requireNotYanked(store, id)
  changeVersion(store, id, { column: 'held_at', value: new Date().toISOString() })
}

/** Serves a version that was held back. Throws as holdVersion does. */
export function releaseVersion(store: Store, id: VersionId): void {
  requireNotYanked(store, id)
  changeVersion(store, id, { column: 'held_at', value: null })
}

function requireNotYanked(store: Store, id: VersionId): void {
  const found = findVersion(store, id)
  if (found === undefined || stateOf(found) !== 'yanked') return
  const { kind, slug, version } = id
  throw new HubError(
    409,
    `Version ${version} of the ${kind} ${slug} is permanently yanked, so nothing was changed: publish a new version.`,
  )
}

function requireOneSpelling(store: Store, wanted: VersionId): void {
  const { kind, slug, version } = wanted
  const isOther = (other: string): boolean => other !== version && withoutV(other) === withoutV(version)
  const other = findVersions(store, wanted).find(found => isOther(found.version))?.version
  if (other === undefined) return
  throw new HubError(
    409,
    `The ${kind} ${slug} has a version ${other}, which hosts take for the same version as ${version}: write it as ${other}, or raise the version.`,
  )
}

interface StateChange {
  readonly column: 'held_at' | 'yanked_at'
  readonly value: string | null
}

function changeVersion(store: Store, { kind, slug, version }: VersionId, { column, value }: StateChange): void {
  const { changes } = store.db
    .prepare(`UPDATE versions SET ${column} = ? WHERE kind = ? AND slug = ? AND version = ?`)
    .run(value, kind, slug, version)
  if (Number(changes) === 0) throw new HubError(404, `The ${kind} ${slug} has no version ${JSON.stringify(version)}.`)
}

function withVersions(store: Store, row: ListingRow): Listing {
  return { ...row, versions: newestFirst(findVersions(store, row)) }
}

/** Undefined if it was never published. */
export function findVersion(store: Store, wanted: VersionId): PublishedVersion | undefined {
  return findVersions(store, wanted).find(({ version }) => version === wanted.version)
}

/** True if the bytes and the signature are the same. */
export function isSame(a: PublishedVersion, b: PublishedVersion): boolean {
  return a.sha256 === b.sha256 && a.signature === b.signature
}

/** In the order of their publication. */
function findVersions(store: Store, { kind, slug }: ListingId): PublishedVersion[] {
  const rows = store.db.prepare('SELECT * FROM versions WHERE kind = ? AND slug = ? ORDER BY rowid').all(kind, slug)
  return rows.map(row => publishedVersionSchema.parse(row))
}

function saveListing(store: Store, { kind, slug, name }: ListingId & Pick<AddOptions, 'name'>): void {
  const onConflict = name === undefined ? 'NOTHING' : 'UPDATE SET name = excluded.name'
  store.db
    .prepare(`INSERT INTO listings (kind, slug, name) VALUES (?, ?, ?) ON CONFLICT DO ${onConflict}`)
    .run(kind, slug, name ?? slug)
}

function savePrivacy({ db }: Store, { kind, slug }: ListingId, isPrivate: boolean): void {
  const sql = isPrivate
    ? 'INSERT OR IGNORE INTO private_listings (kind, slug) VALUES (?, ?)'
    : 'DELETE FROM private_listings WHERE kind = ? AND slug = ?'
  db.prepare(sql).run(kind, slug)
}

function saveVersion(store: Store, version: PublishedVersion): PublishedVersion {
  store.db
    .prepare(
      `INSERT OR REPLACE INTO versions (kind, slug, version, sha256, size, signature, repo, published_at, held_at, yanked_at)
       VALUES (:kind, :slug, :version, :sha256, :size, :signature, :repo, :published_at, :held_at, :yanked_at)`,
    )
    .run(version)
  return version
}

function alreadyPublished({ kind, slug, version, sha256 }: PublishedVersion, wanted: PublishedVersion): HubError {
  const name = `Version ${version} of the ${kind} ${slug}`
  if (sha256 === wanted.sha256)
    return new HubError(
      409,
      `${name} is already published with the same bytes, but signed with another secret: publish with that secret, or add --replace to sign the version with this one.`,
    )
  return new HubError(
    409,
    `${name} is already published with different bytes (SHA-256 ${sha256}): ${kind === 'plugin' ? 'raise the version in plugin.yaml (or --version, if that file has none)' : 'raise --version'} and publish again. --replace publishes the new bytes under this version, but hosts that installed the old bytes refuse the new ones.`,
  )
}
