import { listNames } from '../../core/foreign-text.ts'
import { addedInWords, isOnlyAdded } from '../../install/host/trees/drift-check.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'

/** From which version to which a deployment that succeeded has gone. */
export function describeMove({ previous_version: before, changed, drift = [], ...report }: LocalReport): string {
  const after = report.version ?? report.requested_version ?? 'unknown'
  if (before === null) return `first install of ${after}`
  if (before !== after) return `${before} → ${after}`
  if (changed && drift.length === 0 && hasOtherParts(report)) return describeParts(after, report)
  if (drift.length === 0) return `${after} was already installed`
  if (changed) return `${after} was repaired`
  // Where a report omits paths, added ones are the last that it lists.
  if (!drift.every(entry => isOnlyAdded(entry) && entry.added.length > 0))
    return `${after} is installed, but its files differ from what was installed`
  const count = drift.reduce((sum, { added, omitted = 0 }) => sum + added.length + omitted, 0)
  return `${after} was already installed with these files; ${addedInWords(count)}`
}

type Parts = Pick<LocalReport, 'contract' | 'plugins' | 'sources' | 'rollback_of'>

/** Within one version of a project, its sources may supply other parts, and a rollback may restore earlier ones. */
function hasOtherParts({ contract, sources, rollback_of: replaced }: Parts): boolean {
  return contract === 'project' && (sources !== undefined || replaced !== undefined)
}

function describeParts(version: string, { plugins = [], sources }: Parts): string {
  const isSourced = (id: string): boolean => sources?.some(({ part }) => part === `plugins/${id}`) ?? true
  const names = plugins.filter(({ id }) => isSourced(id)).map(plugin => `${plugin.id} ${plugin.version}`)
  return names.length === 0 ? `${version} now has other parts` : `${version} now has ${listNames(names)}`
}
