import { randomUUID } from 'node:crypto'
import { constants, fstatSync, openSync, readdirSync, readSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { syncDirectory, syncFile } from '../files/durable.ts'
import { closeQuietlySync, readSmallBytesSync } from '../files/open.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { auditPath, byNumber, type Layout, nextNumber, type PartName, partOf, placeName } from '../host/layout.ts'
import { readHostRecord } from '../host/record.ts'
import {
  type InstalledVersion,
  isFrom,
  type Origin,
  type RemovedRow,
  type SourceRecord,
  snapshotsFrom,
} from '../host/rows.ts'
import { MAX_STATE_BYTES } from '../host/state-file.ts'
import { type LocalReport, type ReportFolder, redactReport } from './local-report.ts'

/** Follows no symlink and waits for no pipe. */
const APPEND = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK
/** How far back to look for a line that a dead run has already written. */
const TAIL_BYTES = 64 * 1024

const MAX_BYTES = 16 * 1024 * 1024
/** The maximum number of audit files: the current one and the earlier ones. */
const MAX_FILES = 4

/**
 * Appends one line for a finished deployment, durably. Does not repeat the outcome of a deployment whose run died just
 * after it wrote the line. A line that a crash cut off does not damage the next one. Once the file has reached 16 MiB,
 * a single rename adds the next number to the file's name, and a new file begins. At most four files are kept.
 */
export async function appendAudit({ layout, secrets }: ReportFolder, report: LocalReport): Promise<void> {
  const known = redactReport(report, secrets)
  const { deployment_id, contract, kind, slug, id, version, previous_version, artifact_sha256, outcome } = known
  const { host_id, run, sources, removed } = known
  const line = {
    at: report.completed_at,
    deployment_id,
    contract,
    kind,
    slug,
    id,
    version,
    previous_version,
    artifact_sha256,
    outcome,
    error_code: report.error?.code ?? null,
    host_id,
    actor: run.actor,
    run_url: run.url,
    ...(sources === undefined ? {} : { sources }),
    ...(removed && { removed }),
  }
  const [path, text] = [auditPath(layout), JSON.stringify(line)]
  if ((await appendLine(path, text)) === 'written') return
  await rotate(layout)
  await appendLine(path, text)
}

/** Writes nothing into a full file. Also returns `written` if the file already has the line. */
async function appendLine(path: string, text: string): Promise<'written' | 'full'> {
  const fd = openSync(path, APPEND, 0o600)
  try {
    const lines = readTail(fd).split('\n')
    if (lines.some(known => keyOf(known) === keyOf(text))) return 'written'
    if (fstatSync(fd).size >= MAX_BYTES) return 'full'
    writeFileSync(fd, `${lines.at(-1) === '' ? '' : '\n'}${text}\n`)
    await syncFile(fd)
    return 'written'
  } finally {
    closeQuietlySync(fd)
  }
}

/** Never uses a name twice, so runs that rotate at the same time, or are killed, replace nothing. */
async function rotate(layout: Layout): Promise<void> {
  const number = nextNumber(readRotated(layout))
  renameSync(auditPath(layout), join(layout.own, `audit-${number}-${randomUUID().slice(0, 8)}.jsonl`))
  await syncDirectory(layout.own)
  const old = byNumber(readRotated(layout)).slice(0, 1 - MAX_FILES)
  for (const name of old) tryUnlinkSync(join(layout.own, `audit-${name}`))
}

/** Returns the names of full files, without `audit-`. */
function readRotated({ own }: Layout): string[] {
  return readdirSync(own).flatMap(name => /^audit-(\d{1,15}-[0-9a-f]{8}\.jsonl)$/.exec(name)?.[1] ?? [])
}

/**
 * Identifies a line by its deployment and outcome. Ignores the time, because a recovery may find the same outcome at
 * another time.
 */
function keyOf(line: string): string {
  return [/"deployment_id":"[^"]*"/, /"outcome":"[^"]*"/].map(field => field.exec(line)?.[0]).join()
}

function readTail(fd: number): string {
  const { size } = fstatSync(fd)
  const tail = Buffer.alloc(Math.min(size, TAIL_BYTES))
  return tail.toString('utf8', 0, readSync(fd, tail, 0, tail.length, size - tail.length))
}

const successSchema = z.object({
  contract: z.enum(['marketplace', 'project']),
  slug: z.string(),
  artifact_sha256: z.string(),
  outcome: z.literal('success'),
  sources: z.exactOptional(z.array(z.object({ part: z.string(), from: z.string(), id: z.string() }))),
})
type AuditedSuccess = z.infer<typeof successSchema>

/** An artifact, and its origin. */
interface KnownArtifact {
  readonly origin: Origin
  readonly sha256: string
}

/**
 * True if this host has had an artifact, according to its retained versions or its audit log, but does not have it
 * installed now. The last version of a removed part does not count as replaced.
 */
export function wasReplaced(layout: Layout, artifact: KnownArtifact): boolean {
  const { origin, sha256 } = artifact
  const { installed, removed } = readHostRecord(layout)
  const last = removed.flatMap(row => snapshotsFrom(row, origin).at(-1) ?? [])
  const present = [...installed.filter(row => isFrom(row, origin)), ...last]
  if (present.some(row => row.artifact_sha256 === sha256)) return false
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
interface KnownSupply {
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
    const bytes = readSmallBytesSync(join(own, name), MAX_STATE_BYTES, constants.O_NOFOLLOW) ?? Buffer.alloc(0)
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

function isSuccess(line: string, isWanted: (success: AuditedSuccess) => boolean): boolean {
  try {
    return isWanted(successSchema.parse(JSON.parse(line)))
  } catch {
    return false
  }
}
