import { listNames } from '../../../core/foreign-text.ts'
import { shortDigest } from '../../../core/quantities.ts'
import { addedInWords, isOnlyAdded } from '../../../install/host/trees/drift-check.ts'
import type { LocalReport } from '../../../install/reports/local-report.ts'
import type { DriftEntry } from '../../../install/transaction/facts.ts'
import { actingSteps, hasMovedParts } from '../acting-steps.ts'
import { type Ending, nameOf, type RunFacts } from '../ending.ts'
import { checkedParts } from './checked-parts.ts'

/** Describes a run that succeeded. The step fails anyway if the hub refused the report. */
export function describeSuccess(run: RunFacts): Ending {
  const { report, error } = run
  const ending = report.changed ? describeChange(report) : describeUnchanged(run)
  if (error === undefined) return ending
  return { mark: '⚠️', sentence: `${ending.sentence}; the workflow step failed anyway (${error.code})` }
}

function describeChange(report: LocalReport): Ending {
  const { previous_version: before, host_id: host, rollback_of: replaced } = report
  const after = report.version ?? report.requested_version ?? 'unknown'
  const on = `on ${host}`
  if (replaced !== undefined && before !== null && before !== after)
    return { mark: '⏪', sentence: `${nameOf(report)} ${before} → ${after} ${on}, restored from a snapshot` }
  if (report.unrecorded)
    return {
      mark: '✅',
      sentence: `First install of ${nameOf(report)} ${after} ${on}; it replaced files that this action had not installed`,
    }
  if (before === null) return { mark: '✅', sentence: `First install of ${nameOf(report)} ${after} ${on}` }
  if (before !== after) return { mark: '✅', sentence: `${nameOf(report)} ${before} → ${after} ${on}` }
  return { mark: '✅', sentence: describeSame(report, after) }
}

/** Describes a run that changed a host on which the version was already installed. */
function describeSame(report: LocalReport, version: string): string {
  const { host_id: host, drift = [], steps, artifact_sha256: now, previous_sha256: before } = report
  const there = `${nameOf(report)} ${version}`
  if (!hasMovedParts(report)) {
    const hasWritten = steps.some(({ action, status }) => action === 'write_env' && status === 'done')
    return `${there} was already on ${host}${hasWritten ? '; its settings were written' : ', and was changed'}`
  }
  if (drift.some(isOfReplaced)) return `${there} was repaired on ${host}`
  if (hasOtherParts(report)) return `${nameOf(report)} ${describeParts(version, report)} on ${host}`
  const isOther = now !== null && before !== undefined && now !== before
  const other = isOther ? ` with different bytes (sha256 ${shortDigest(before)} → ${shortDigest(now)})` : ''
  return `${there} was already on ${host}, and was installed again${other}`
}

/**
 * True if the run replaced the tree. A tree that differs can stay in its place only if files were merely added to it.
 */
function isOfReplaced({ snapshot, ...entry }: DriftEntry): boolean {
  return snapshot !== undefined || !isOnlyAdded(entry)
}

function describeUnchanged({ report, plannedSteps, dryRun }: RunFacts): Ending {
  const { host_id: host, previous_version: before, state } = report
  const after = report.version ?? report.requested_version ?? 'unknown'
  const there = `${nameOf(report)} ${after}`
  if (isCheck(report)) return describeCheck(report, `${there} on ${host}`)
  if (state !== 'succeeded') {
    const move =
      before === null
        ? `first install of ${there}`
        : before === after
          ? there
          : `${nameOf(report)} ${before} → ${after}`
    return { mark: '🔎', sentence: `Dry run: ${move} on ${host} would ${dryRun?.inWords() ?? 'change nothing'}` }
  }
  // A new version of a project may consist of the parts that are installed.
  const isNewVersion = before !== null && before !== after
  const present = isNewVersion ? `${nameOf(report)} ${before} → ${after} on ${host}` : `${there} is already on ${host}`
  const { drift = [] } = report
  const acted = actingSteps(report)
  const starters = plannedSteps.flatMap(({ id, isIdle }) => (isIdle && acted.includes(id) ? [id] : []))
  if (starters.length > 0)
    return {
      mark: '✅',
      sentence: `${present}; ${listNames(starters)} started services that were not running`,
    }
  if (acted.length > 0) return { mark: '✅', sentence: `${present}; its steps were run again` }
  if (drift.length === 0)
    return { mark: '✅', sentence: `${present}${isNewVersion ? '; no part changed' : ', unmodified'}` }
  // A report lists added paths last, so every path that it omits here is an added path.
  if (!drift.every(entry => isOnlyAdded(entry) && entry.added.length > 0))
    return { mark: '⚠️', sentence: `${present}, but its files differ from what was installed` }
  const count = drift.reduce((sum, { added, omitted = 0 }) => sum + added.length + omitted, 0)
  const isLeast = drift.some(({ uncounted }) => uncounted)
  return { mark: '✅', sentence: `${present}; ${addedInWords(count, isLeast)}` }
}

/** A check that found no health check to run has only compared files. */
function describeCheck(report: LocalReport, there: string): Ending {
  if (checkedParts(report).extent === 'none')
    return { mark: '⚠️', sentence: `${there} is installed and intact; no health check ran` }
  return { mark: '🩺', sentence: `${there} is healthy; nothing was changed` }
}

/** True if a run only checked what was installed. */
function isCheck({ states }: LocalReport): boolean {
  const entered = states.map(({ state }) => state)
  return entered.includes('healthchecking') && !entered.includes('installing')
}

/**
 * True for a project whose parts may differ within one version: its sources may supply other parts, or a rollback may
 * have restored earlier ones.
 */
function hasOtherParts({ contract, sources, rollback_of: replaced }: LocalReport): boolean {
  return contract === 'project' && (sources !== undefined || replaced !== undefined)
}

function describeParts(version: string, { plugins = [], sources }: LocalReport): string {
  const isSourced = (id: string): boolean => sources?.some(({ part }) => part === `plugins/${id}`) ?? true
  const names = plugins.filter(({ id }) => isSourced(id)).map(plugin => `${plugin.id} ${plugin.version}`)
  return names.length === 0 ? `${version} now has other parts` : `${version} now has ${listNames(names)}`
}
