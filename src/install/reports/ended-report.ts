import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Layout } from '../host/layout.ts'
import { readStateFileSync } from '../host/state-file.ts'
import { type FoundReport, type LocalReport, localReportSchema } from './local-report.ts'

/** A name begins with the time; a run that asks has begun not long ago, even if the clock of another was ahead. */
const MAX_READ = 200

/** The local report of a deployment of which nothing but its id is known, among the newest ones. Never throws. */
export function findEndedReport({ reports }: Layout, deploymentId: string): FoundReport | undefined {
  const newest = namesIn(reports).toSorted().reverse().slice(0, MAX_READ)
  for (const name of newest) {
    const path = join(reports, name)
    const report = readReport(path)
    if (report?.deployment_id === deploymentId) return { path, report }
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

function readReport(path: string): LocalReport | undefined {
  try {
    return localReportSchema.parse(JSON.parse(readStateFileSync(path) ?? ''))
  } catch {
    return undefined
  }
}
