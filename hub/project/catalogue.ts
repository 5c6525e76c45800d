import { z } from 'zod'
import { randomAlphanumerics } from '../access.ts'
import { HubError } from '../errors.ts'
import { labelSchema, newestFirst, parseInput } from '../names.ts'
import { inTransaction, type Store } from '../store.ts'

const storedVersionSchema = z.object({
  project_id: z.string(),
  version: z.string(),
  sha256: z.string(),
  size: z.number(),
  signature: z.string(),
  signer_public_key: z.string(),
  published_at: z.string(),
  revoked_at: z.string().nullable(),
})

/** Identifies one version of a project. */
export interface ProjectVersionId {
  readonly project_id: string
  readonly version: string
}

/** A sealed version, without its DEK; `signature` and `signer_public_key` are base64 (contract 2.2). */
export type ProjectVersion = z.infer<typeof storedVersionSchema>

const createdProjectSchema = z.object({ project_id: z.string(), name: z.string(), created_at: z.string() })
export type CreatedProject = z.infer<typeof createdProjectSchema>

/** A project with its versions, newest first; `name` is null if it was never created, only published. */
export interface Project {
  readonly project_id: string
  readonly name: string | null
  readonly versions: ProjectVersion[]
}

const ID_PREFIX = 'prj_'
const ID_CHARS = 20

const COLUMNS = storedVersionSchema.keyof().options.join(', ')

/** Creates a project, with an id that every client of the contract accepts. Publishes nothing. */
export function createProject(store: Store, name: string): CreatedProject {
  const project_id = `${ID_PREFIX}${randomAlphanumerics(ID_CHARS)}`
  const project = { project_id, name: parseInput(labelSchema, name), created_at: new Date().toISOString() }
  store.db
    .prepare('INSERT INTO projects (project_id, name, created_at) VALUES (:project_id, :name, :created_at)')
    .run(project)
  return project
}

/** Lists the projects that were created or published. */
export function listProjects(store: Store): Project[] {
  const names = new Map(listCreated(store).map(({ project_id, name }) => [project_id, name]))
  const rows = store.db.prepare(`SELECT ${COLUMNS} FROM project_versions ORDER BY rowid`).all()
  const published = Map.groupBy(parseRows(rows), ({ project_id }) => project_id)
  const ids = [...new Set([...names.keys(), ...published.keys()])].sort()
  return ids.map(project_id => ({
    project_id,
    name: names.get(project_id) ?? null,
    versions: newestFirst(published.get(project_id) ?? []),
  }))
}

/** Throws HubError 404 if the project was neither created nor published. */
export function requireProject(store: Store, projectId: string): void {
  if (findVersions(store, projectId).length > 0) return
  if (listCreated(store).some(({ project_id }) => project_id === projectId)) return
  throw new HubError(
    404,
    `There is no project ${JSON.stringify(projectId)}: correct the id, or run "project create" or "project publish" first.`,
  )
}

/** The newest version that is not revoked; undefined if there is none. */
export function latestProjectVersion(store: Store, projectId: string): ProjectVersion | undefined {
  return newestFirst(findVersions(store, projectId)).find(({ revoked_at }) => revoked_at === null)
}

/** Returns a version, revoked or not. Throws HubError 404 if it was never published. */
export function readProjectVersion(store: Store, wanted: ProjectVersionId): ProjectVersion {
  const found = findProjectVersion(store, wanted)
  if (found === undefined) throw neverPublished(wanted)
  return found
}

/** Returns a version, revoked or not; undefined if it was never published. */
export function findProjectVersion(store: Store, wanted: ProjectVersionId): ProjectVersion | undefined {
  return findVersions(store, wanted.project_id).find(({ version }) => version === wanted.version)
}

/** Returns the version with this artifact signature, revoked or not; undefined if there is none. */
export function findBySignature(
  store: Store,
  wanted: { project_id: string; artifact_signature: string },
): ProjectVersion | undefined {
  return findVersions(store, wanted.project_id).find(({ signature }) => signature === wanted.artifact_signature)
}

export function readEncryptedDek(store: Store, { project_id, version }: ProjectVersionId): Uint8Array {
  const row = store.db
    .prepare('SELECT encrypted_dek FROM project_versions WHERE project_id = ? AND version = ?')
    .get(project_id, version)
  return z.object({ encrypted_dek: z.instanceof(Uint8Array) }).parse(row).encrypted_dek
}

/**
 * Adds a version. Adding it again with the same signature changes nothing: a revoked version stays revoked. Throws
 * HubError 409 if the version is already published with different bytes or another signature. Also throws it if the
 * signature already belongs to a different version: a signature must identify one version.
 */
export function addProjectVersion(store: Store, version: ProjectVersion, encryptedDek: Uint8Array): ProjectVersion {
  return inTransaction(store, () => findSame(store, version) ?? saveVersion(store, version, encryptedDek))
}

/**
 * Returns the version that is already published with this signature, else undefined. Throws HubError 409 as
 * addProjectVersion does.
 */
export function findSame(store: Store, wanted: ProjectVersion): ProjectVersion | undefined {
  const same = findVersions(store, wanted.project_id).find(
    ({ version, signature }) => version === wanted.version || signature === wanted.signature,
  )
  if (same === undefined) return undefined
  if (same.version === wanted.version && same.signature === wanted.signature) return same
  throw alreadyPublished(same, wanted)
}

function alreadyPublished(same: ProjectVersion, wanted: ProjectVersion): HubError {
  const { project_id, version, sha256 } = same
  const name = `${version} of the project ${project_id}`
  if (version !== wanted.version) return new HubError(409, `These bytes are already published as version ${name}.`)
  if (sha256 === wanted.sha256)
    return new HubError(
      409,
      `Version ${name} is already published with the same bytes, but another signature: publish a new version.`,
    )
  return new HubError(
    409,
    `Version ${name} is already published with different bytes (SHA-256 ${sha256}): publish a new version. Sealing the same files again produces different bytes.`,
  )
}

/** Stops releasing the version's DEK. Throws HubError 404 if the version was never published. */
export function revokeProjectVersion(store: Store, wanted: ProjectVersionId): void {
  const { changes } = store.db
    .prepare('UPDATE project_versions SET revoked_at = coalesce(revoked_at, ?) WHERE project_id = ? AND version = ?')
    .run(new Date().toISOString(), wanted.project_id, wanted.version)
  if (Number(changes) === 0) throw neverPublished(wanted)
}

function listCreated(store: Store): CreatedProject[] {
  const rows = store.db.prepare('SELECT project_id, name, created_at FROM projects').all()
  return rows.map(row => createdProjectSchema.parse(row))
}

/** In the order of their publication. */
function findVersions(store: Store, projectId: string): ProjectVersion[] {
  const versions = `SELECT ${COLUMNS} FROM project_versions WHERE project_id = ? ORDER BY rowid`
  return parseRows(store.db.prepare(versions).all(projectId))
}

function parseRows(rows: unknown[]): ProjectVersion[] {
  return rows.map(row => storedVersionSchema.parse(row))
}

function saveVersion(store: Store, version: ProjectVersion, encryptedDek: Uint8Array): ProjectVersion {
  store.db
    .prepare(
      `INSERT INTO project_versions (${COLUMNS}, encrypted_dek)
       VALUES (:project_id, :version, :sha256, :size, :signature, :signer_public_key, :published_at, :revoked_at, :dek)`,
    )
    .run({ ...version, dek: encryptedDek })
  return version
}

function neverPublished({ project_id, version }: ProjectVersionId): HubError {
  return new HubError(404, `The project ${JSON.stringify(project_id)} has no version ${JSON.stringify(version)}.`)
}
