import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Layout } from '../host/layout.ts'
import { type FoundReport, readReportOf } from './local-report.ts'

/**
 * The maximum number of reports to read. The name of a report begins with the start time of its run. The run in
 * question began recently, so its report is among the newest, even if the clock of another run was ahead.
 */
const MAX_READ = 200

/** Returns the local report of the deployment with this id, if it is among the newest 200 reports. Never throws. */
export function findEndedReport({ reports }: Layout, deploymentId: string): FoundReport | undefined {
  const newest = namesIn(reports).toSorted().reverse().slice(0, MAX_READ)
  for (const name of newest) {
    const path = join(reports, name)
    const report = readReportOf(path, deploymentId)
    if (report !== undefined) return { path, report }
  }
  return undefined
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder).filter(name => name.endsWith('.json'))
  } catch {
    return []
  }
}
