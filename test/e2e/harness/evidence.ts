import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ActionResult } from '../../../local/runner.ts'
import type { LocalReport } from '../../../src/install/reports/local-report.ts'
import { listTree } from '../../install/archive/directory-listing.ts'
import type { Stage } from './stage.ts'

/** A row of the hub's table of reports. */
export interface ReportRow {
  kind: string
  slug: string
  version: string
  host_id: string
  status: string
  repo: string | null
  error_message: string | null
  started_at: string
  completed_at: string
}

/** Every report that the hub has accepted, oldest first. */
export function acceptedReports(stage: Pick<Stage, 'store'>): ReportRow[] {
  const rows = stage.store.db.prepare('SELECT * FROM reports ORDER BY seq').all()
  return rows as unknown as ReportRow[]
}

/** The local report of a run. */
export function readLocalReport(result: ActionResult): LocalReport {
  return JSON.parse(readFileSync(result.outputs['report-path'] ?? '', 'utf8'))
}

/**
 * The paths that a run without changes must not touch. Leaves out the entries of the action's own folders themselves,
 * the reports, the audit log, the tree records, and the action's auxiliary files.
 */
export function listHost(root: string): Record<string, string> {
  const own =
    /^\.hub-deploy($|\/(staging|snapshots(\/(plugins|extensions)(\/[^/]+)?)?)$|\/(reports|outbox|trees|audit\.jsonl|reserve|kernel-lock|rename-probe)(\/|$))/
  return Object.fromEntries(Object.entries(listTree(root)).filter(([path]) => !own.test(path)))
}

/** The names in a folder of `.hub-deploy/`; none if there is no such folder. */
export function listOwn(stage: { readonly root: string }, folder: string): string[] {
  try {
    return readdirSync(join(stage.root, '.hub-deploy', folder)).sort()
  } catch {
    return []
  }
}

/** The commands of one kind (`error`, `notice`, ...) in a workflow log. */
export function commandsIn(log: string, kind: string): string[] {
  return log.split('\n').filter(line => line.startsWith(`::${kind} `) || line.startsWith(`::${kind}::`))
}
