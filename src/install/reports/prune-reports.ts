import { readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { tryUnlinkSync } from '../files/remove-tree.ts'

const NAME = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-(.+)\.json$/
const UUID = /(?:^|-)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/**
 * Removes the oldest local reports of the plugin, service or project that this one is about, until `keep` are left: never
 * this one, even if the clock was set back, and no file that has another name than reports have. Never throws.
 */
export function pruneReports(report: string, keep: number): void {
  const [folder, newest] = [dirname(report), basename(report)]
  const others = namesIn(folder).filter(name => name !== newest && subjectOf(name) === subjectOf(newest))
  const excess = others.length + 1 - Math.max(keep, 1)
  if (excess <= 0) return
  for (const name of others.toSorted().slice(0, excess)) tryUnlinkSync(join(folder, name))
}

/** Empty for a run that did not know what it was to deploy. */
function subjectOf(name: string): string | undefined {
  return NAME.exec(name)?.[1]?.replace(UUID, '')
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
