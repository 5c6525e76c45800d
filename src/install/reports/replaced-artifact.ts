import { closeSync, constants, fstatSync, openSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { errnoOf } from '../../core/errors.ts'
import { isFrom, type Origin, readHostRecord, snapshotsFrom } from '../host/installed.ts'
import type { Layout } from '../host/layout.ts'

const successSchema = z.object({
  contract: z.enum(['marketplace', 'project']),
  slug: z.string(),
  artifact_sha256: z.string(),
  outcome: z.literal('success'),
})

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
  return snapshots.some(row => row.artifact_sha256 === sha256) || wasAudited(layout, artifact)
}

/** Reads no more than the lines that contain the digest. */
function wasAudited({ own }: Layout, { origin, sha256 }: KnownArtifact): boolean {
  return auditFilesSync(own).some(name => {
    const bytes = readRegularFileSync(join(own, name))
    // Long before it is full, such a file takes much longer to divide into lines than to search.
    if (!bytes.includes(sha256)) return false
    const lines = bytes.toString('utf8').split('\n')
    return lines.some(line => line.includes(sha256) && isSuccessOf(line, { origin, sha256 }))
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

function isSuccessOf(line: string, { origin, sha256 }: KnownArtifact): boolean {
  try {
    const entry = successSchema.parse(JSON.parse(line))
    return isFrom(entry, origin) && entry.artifact_sha256 === sha256
  } catch {
    return false
  }
}
