import { readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { tryUnlinkSync } from '../files/trees/remove-tree.ts'
import { readStateFileSync } from '../host/state-file.ts'

const NAME =
  /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-(.+?)(-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?\.json$/

/**
 * Removes the oldest local reports of the plugin, service or project with this slug until `keep` are left. A null slug
 * means the reports of runs that ended before they knew what to deploy. Never removes `report` itself, even if the
 * clock was set back, or a file whose name does not look like a report's. Never throws.
 */
export function pruneReports(report: string, slug: string | null, keep: number): void {
  const [folder, newest] = [dirname(report), basename(report)]
  const isOfThis = slug === null ? isNamelessIn(folder) : (name: string) => slugOf(name) === slug
  const others = namesIn(folder).filter(name => name !== newest && isOfThis(name))
  const excess = others.length + 1 - Math.max(keep, 1)
  if (excess <= 0) return
  for (const name of others.toSorted().slice(0, excess)) tryUnlinkSync(join(folder, name))
}

function slugOf(name: string): string | undefined {
  return NAME.exec(name)?.[1]
}

/**
 * Reads the reports, because the name of a report without a slug contains the deployment's id, which looks like a slug.
 */
function isNamelessIn(folder: string): (name: string) => boolean {
  return name => slugOf(name) !== undefined && readSlug(join(folder, name)) === null
}

function readSlug(path: string): unknown {
  try {
    return (JSON.parse(readStateFileSync(path) ?? '') as { slug?: unknown }).slug
  } catch {
    return undefined
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
