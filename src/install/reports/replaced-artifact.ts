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

/** An artifact, and what it is an artifact of. */
export interface KnownArtifact {
  readonly origin: Origin
  readonly sha256: string
}

/** Whether this host has had an artifact, by its retained versions or its audit log, and runs another one now. */
export function wasReplaced(layout: Layout, artifact: KnownArtifact): boolean {
  const { origin, sha256 } = artifact
  const { installed, removed } = readHostRecord(layout)
  if (installed.some(row => isFrom(row, origin) && row.artifact_sha256 === sha256)) return false
  const snapshots = [...installed, ...removed].flatMap(row => snapshotsFrom(row, origin))
  if (snapshots.some(row => row.artifact_sha256 === sha256)) return true
  return wasAudited(layout, sha256, entry => isFrom(entry, origin) && entry.artifact_sha256 === sha256)
}

/** Which version of an origin this host has now, and when it was installed; undefined where it has none. */
export function presentVersion(
  layout: Layout,
  origin: Origin,
): Pick<InstalledVersion, 'version' | 'installed_at'> | undefined {
  const row = readHostRecord(layout).installed.find(each => isFrom(each, origin))
  return row && { version: row.project_version ?? row.version, installed_at: row.installed_at }
}

/** What a source supplied for a part of an origin. */
export interface KnownSupply {
  readonly origin: Origin
  readonly part: PartName
  readonly source: SourceRecord
}

/**
 * Whether this host has had what a source supplies, by its retained versions or its audit log, and it was replaced: in
 * the same part, or in another one of the same origin if none has it now. What a removed part had last was not replaced.
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

/** Reads no more than the lines that contain the digest. */
function wasAudited({ own }: Layout, sha256: string, isWanted: (success: AuditedSuccess) => boolean): boolean {
  return auditFilesSync(own).some(name => {
    const bytes = readRegularFileSync(join(own, name))
    // Long before it is full, such a file takes much longer to divide into lines than to search.
    if (!bytes.includes(sha256)) return false
    const lines = bytes.toString('utf8').split('\n')
    return lines.some(line => line.includes(sha256) && isSuccess(line, isWanted))
  })
}

/** The log and those that were rotated away from it. */
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
