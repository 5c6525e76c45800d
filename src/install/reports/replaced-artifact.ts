import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { readHostRecord } from '../host/installed/host-record.ts'
import { isFrom, snapshotsFrom } from '../host/installed/origin.ts'
import { partOf } from '../host/installed/row-place.ts'
import type { InstalledVersion, Origin, RemovedRow, SourceRecord } from '../host/installed/rows.ts'
import { type Layout, type PartName, placeName } from '../host/layout.ts'

const successSchema = z.object({
  contract: z.enum(['marketplace', 'project']),
  slug: z.string(),
  artifact_sha256: z.string(),
  outcome: z.literal('success'),
  sources: z.optional(z.array(z.object({ part: z.string(), from: z.string(), id: z.string() }))),
})
type AuditedSuccess = z.infer<typeof successSchema>

/** An artifact, and its origin. */
export interface KnownArtifact {
  readonly origin: Origin
  readonly sha256: string
}

/**
 * True if this host has had an artifact, according to its retained versions or its audit log, but does not have it
 * installed now.
 */
export function wasReplaced(layout: Layout, artifact: KnownArtifact): boolean {
  const { origin, sha256 } = artifact
  const { installed, removed } = readHostRecord(layout)
  if (installed.some(row => isFrom(row, origin) && row.artifact_sha256 === sha256)) return false
  const snapshots = [...installed, ...removed].flatMap(row => snapshotsFrom(row, origin))
  if (snapshots.some(row => row.artifact_sha256 === sha256)) return true
  return wasAudited(layout, sha256, entry => isFrom(entry, origin) && entry.artifact_sha256 === sha256)
}

/** Returns the version of an origin that this host has now, and when it was installed; undefined if there is none. */
export function presentVersion(
  layout: Layout,
  origin: Origin,
): Pick<InstalledVersion, 'version' | 'installed_at'> | undefined {
  const row = readHostRecord(layout).installed.find(each => isFrom(each, origin))
  return row && { version: row.project_version ?? row.version, installed_at: row.installed_at }
}

/** A part of an origin, and the source of its content. */
export interface KnownSupply {
  readonly origin: Origin
  readonly part: PartName
  readonly source: SourceRecord
}

/**
 * True if this host has had the content of a source, according to its retained versions or its audit log, and has
 * replaced that content. The content may have been in the same part or, if no part has it now, in another part of the
 * same origin. The last version of a removed part does not count as replaced.
 */
export function wasSupplyReplaced(layout: Layout, { origin, part, source }: KnownSupply): boolean {
  const { installed, removed } = readHostRecord(layout)
  const isSame = (row: InstalledVersion | undefined): boolean => isSameSource(row?.source, source)
  const isHere = (row: RemovedRow): boolean => placeName(partOf(row)) === placeName(part)
  const present = [
    ...installed.filter(row => isFrom(row, origin) && isSame(row)),
    ...removed.filter(row => isSame(snapshotsFrom(row, origin).at(-1))),
  ]
  if (present.some(isHere)) return false
  const counts = (name: string): boolean => name === placeName(part) || present.length === 0
  const rows = [...installed, ...removed].filter(row => counts(placeName(partOf(row))))
  if (rows.some(row => snapshotsFrom(row, origin).some(isSame))) return true
  return wasAudited(layout, source.id, entry => {
    const supplied = entry.sources?.some(known => counts(known.part) && isSameSource(known, source)) ?? false
    return supplied && isFrom(entry, origin)
  })
}

function isSameSource(a: SourceRecord | undefined, b: SourceRecord): boolean {
  return a !== undefined && a.from === b.from && a.id === b.id
}

/** Parses only the lines that contain `id`, which is a digest or a commit. */
function wasAudited({ own }: Layout, id: string, isWanted: (success: AuditedSuccess) => boolean): boolean {
  return auditFilesSync(own).some(name => {
    const bytes = readRegularFileSync(join(own, name))
    // Splitting a long log into lines takes much longer than searching it.
    if (!bytes.includes(id)) return false
    const lines = bytes.toString('utf8').split('\n')
    return lines.some(line => line.includes(id) && isSuccess(line, isWanted))
  })
}

/** Returns the names of the log and of its rotated predecessors. */
function auditFilesSync(folder: string): string[] {
  try {
    return readdirSync(folder).filter(name => name.startsWith('audit'))
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return []
    throw error
  }
}

function readRegularFileSync(path: string): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  try {
    return fstatSync(fd).isFile() ? readFileSync(fd) : Buffer.alloc(0)
  } finally {
    closeSync(fd)
  }
}

function isSuccess(line: string, isWanted: (success: AuditedSuccess) => boolean): boolean {
  try {
    return isWanted(successSchema.parse(JSON.parse(line)))
  } catch {
    return false
  }
}
