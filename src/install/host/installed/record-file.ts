import { z } from 'zod/mini'
import { DeploymentError } from '../../../core/errors.ts'
import { replaceFile } from '../../files/durable-files.ts'
import type { Layout } from '../layout.ts'
import { snapshotPathSchema } from '../record-fields.ts'
import { describeDamage, readStateFileSync } from '../state-file.ts'
import { nameOf } from './row-place.ts'
import {
  type InstalledRow,
  installedRowSchema,
  isUnique,
  type ProjectVersion,
  projectVersionSchema,
  type RemovedRow,
  removedRowSchema,
} from './rows.ts'

/** The content of `installed.json`; the journal contains it, too. */
export const recordFileSchema = z
  .object({
    schema: z.literal(1),
    installed: z.array(installedRowSchema),
    /** Left out when empty. */
    removed: z.exactOptional(z.array(removedRowSchema)),
    /** The versions of projects that still have parts here, the newest of each project last. Left out when empty. */
    projects: z.exactOptional(z.array(projectVersionSchema)),
    /** Snapshots that could not be removed yet, relative to the project root. Left out when empty. */
    discard: z.exactOptional(z.array(snapshotPathSchema)),
  })
  .check(
    z.refine(({ installed, removed = [], discard = [] }) => {
      const retained = retainedPaths([...installed, ...removed])
      return discard.every(path => !retained.has(path))
    }, 'lists a retained snapshot under discard, so it contradicts itself'),
    z.refine(({ installed, removed = [] }) => isUnique([...installed, ...removed].map(nameOf)), {
      error: 'lists a plugin or extension twice, so it contradicts itself',
    }),
    z.refine(({ installed }) => installed.every(row => row.kind === 'plugin' || row.directory === undefined), {
      error: 'has a service in a directory of plugins, so it contradicts itself',
    }),
  )
type RecordFile = z.infer<typeof recordFileSchema>

export interface HostRecord {
  readonly installed: readonly InstalledRow[]
  readonly removed: readonly RemovedRow[]
  /** The versions of projects that still have parts here, the newest of each project last. */
  readonly projects: readonly ProjectVersion[]
  /** Snapshots that could not be removed yet, relative to the project root. */
  readonly discard: readonly string[]
}

/**
 * Reads `installed.json`; returns an empty record if there is none. Throws DeploymentError `inconsistent` if the file
 * is not a record that this action writes, and the errors of `readStateFileSync`.
 */
export function readRecordFile(layout: Layout): HostRecord {
  const text = readStateFileSync(layout.installed)
  if (text === undefined) return { installed: [], removed: [], projects: [], discard: [] }
  try {
    return parseRecord(text)
  } catch (error) {
    throw new DeploymentError(
      'inconsistent',
      `${layout.installed} is not a record that this action writes (${describeDamage(error)}). Restore it from a copy. Or move it away (this removes no plugin or service), and deploy each plugin, service and project again: name its version, and set allow-takeover: true for a project. Until then, this action has no record of the installed directories.`,
      { cause: error },
    )
  }
}

/** Writes the record, durably. Returns the record as readers will get it from the file. */
export async function writeRecordFile(layout: Layout, record: HostRecord): Promise<HostRecord> {
  const file = fileOf(record)
  await replaceFile(layout.installed, `${JSON.stringify(file, null, 2)}\n`)
  return recordOf(file)
}

/**
 * Returns the file's content for a record. Parsing puts the keys in a fixed order, so the same rows always have the
 * same bytes.
 */
export function fileOf({ installed, ...lists }: HostRecord): RecordFile {
  const optional = Object.fromEntries(Object.entries(lists).filter(([, list]) => list.length > 0))
  return recordFileSchema.parse({ schema: 1, installed, ...optional })
}

/** Returns the record that a file contains. */
export function recordOf({ installed, removed = [], projects = [], discard = [] }: RecordFile): HostRecord {
  return { installed, removed, projects, discard }
}

/** Returns the paths of the snapshots in these rows, relative to the project root. */
export function retainedPaths(rows: readonly RemovedRow[]): Set<string> {
  return new Set(rows.flatMap(row => row.snapshots.map(({ name }) => `.hub-deploy/snapshots/${nameOf(row)}/${name}`)))
}

/**
 * The last text that was parsed, and its record. A process reads the same text many times and need not check it each
 * time.
 */
let latest: { readonly text: string; readonly record: HostRecord } | undefined

function parseRecord(text: string): HostRecord {
  if (latest?.text !== text) latest = { text, record: recordOf(recordFileSchema.parse(JSON.parse(text))) }
  return latest.record
}
