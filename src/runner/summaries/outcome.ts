import type { ErrorCode } from '../../core/errors.ts'
import { isHostAction, isInstallAction } from '../../core/plan/step.ts'
import { countInWords, listNames, shortDigest } from '../../core/text.ts'
import type { DriftEntry } from '../../install/journal/facts.ts'
import type { LocalReport } from '../../install/reports/local-report.ts'
import type { RunResult } from '../../install/reports/result.ts'
import { addedInWords, isOnlyAdded } from '../../install/trees/drift.ts'

/** Describes the ending of a deployment or rollback, for the log's last line and the summary's first. */
export function buildHeadline(run: RunResult): Headline {
  const { report } = run
  switch (report.outcome) {
    case 'success':
      return describeSuccess(run)
    case 'failed':
      return describeFailure(report)
    case 'rolled_back':
      return { mark: '↩️', sentence: `${wanted(report)} was rolled back on ${report.host_id}; ${restoredNow(report)}` }
    case 'interrupted': {
      const run = report.removed ? wanted(report) : `The deployment of ${wanted(report)}`
      return { mark: '⚠️', sentence: `${run} on ${report.host_id} was interrupted` }
    }
    case 'inconsistent':
      return { mark: '🛑', sentence: describeUncertain(report) }
  }
}

function describeUncertain(report: LocalReport): string {
  const { host_id: host, error } = report
  const verb = (error && VERBS[error.code]) ?? 'was refused'
  if (isUncertainBefore(report))
    return `${nameSubject(report)} ${verb} on ${host}, whose state is uncertain: repair the host`
  return `${host} may have neither the old nor the new version of ${subjectName(report)} intact: repair the host`
}

function describeFailure(report: LocalReport): Headline {
  const { host_id: host, error } = report
  const subject = nameSubject(report)
  const verb = error && VERBS[error.code]
  if (actingSteps(report).length > 0)
    return {
      mark: '❌',
      sentence: `${subject} ${verb ?? 'failed'} on ${host}; no file was changed${neverStopped(report)}`,
    }
  if (error?.code === 'unhealthy')
    return { mark: '❌', sentence: `${wanted(report)} on ${host} is unhealthy; nothing was changed` }
  const otherwise = error === null && !report.removed ? 'was not installed' : 'was refused'
  return { mark: '❌', sentence: `${subject} ${verb ?? otherwise} on ${host}; ${installedNow(report)}` }
}

function nameSubject(report: LocalReport): string {
  const { rollback_of: replaced, slug, id } = report
  if (replaced === undefined) return wanted(report)
  const name = slug ?? id
  return name ? `The rollback of ${name}` : 'This rollback'
}

/** What happened to an artifact that no check has refused, by error code. */
const VERBS: Partial<Record<ErrorCode, string>> = {
  network: 'could not be fetched',
  timeout: 'could not be fetched',
  bad_response: 'could not be fetched',
  artifact_unavailable: 'could not be fetched',
  not_found: 'was not found on the hub and was not installed',
  no_published_version: 'has no known version and was not installed',
  not_installed: 'was not found intact',
  cancelled: 'was cancelled',
  interrupted: 'was interrupted',
  locked: 'gave way to another deployment',
  disk_full: 'did not fit',
  internal_error: 'failed',
  step_failed: 'failed',
  step_timed_out: 'failed',
}

function restoredNow({ previous_version: before, running_version: now, rollback, unrecorded }: LocalReport): string {
  if (unrecorded || (before !== null && now === null)) return 'the files that were there before are back'
  if (before === null) return 'nothing is installed, as before'
  if (rollback?.healthy === false) return `${before} is installed again, but not healthy`
  if (rollback?.stopped === false) return `${before} is installed again${neverStopped({ rollback })}`
  return `${before} is ${rollback?.healthy === true ? 'running' : 'installed'} again`
}

/** Continues a sentence if the services that ran before the run have run all the time. */
export function neverStopped({ rollback }: Pick<LocalReport, 'rollback'>): string {
  return rollback?.stopped === false ? ', and its service never stopped' : ''
}

/** The version on the host now, if the report names it. */
function installedNow({ running_version: version, error }: LocalReport): string {
  if (error?.code === 'locked') return 'this run changed nothing'
  return version === null ? 'nothing was changed' : `${version} is still installed`
}

/** The name with the version that was to be installed; for a removal, the removal. */
function wanted(report: LocalReport): string {
  const { version, requested_version: asked } = report
  if (report.removed) return `The removal of ${subjectName(report)}`
  if (version === null && asked === 'latest') return `${subjectName(report)} (latest)`
  return `${subjectName(report)} ${version ?? asked ?? ''}`.trim()
}

/** Describes a run that succeeded. The step fails anyway if the hub refused the report. */
function describeSuccess(run: RunResult): Headline {
  const { report, error } = run
  const ending = report.removed
    ? describeRemoval(run)
    : report.changed
      ? describeVersionChange(report)
      : describeUnchanged(run)
  if (error === undefined) return ending
  return { mark: '⚠️', sentence: `${ending.sentence}; the workflow step failed anyway (${error.code})` }
}

function describeRemoval({ report, dryRun }: RunResult): Headline {
  const { previous_version: before, host_id: host, changed, state } = report
  const removed = `${subjectName(report)} ${before ?? ''}`.trim()
  if (state !== 'succeeded')
    return {
      mark: '🔎',
      sentence: `Dry run: the removal of ${removed} from ${host} would ${dryRun?.inWords() ?? 'change nothing'}`,
    }
  if (!changed) return { mark: '✅', sentence: `${subjectName(report)} is not installed on ${host}` }
  return { mark: '🗑️', sentence: `${removed} was removed from ${host}, and is kept as a snapshot` }
}

function describeVersionChange(report: LocalReport): Headline {
  const { previous_version: before, host_id: host, rollback_of: replaced } = report
  const after = report.version ?? report.requested_version ?? 'unknown'
  const on = `on ${host}`
  if (replaced !== undefined && before !== null && before !== after)
    return { mark: '⏪', sentence: `${subjectName(report)} ${before} → ${after} ${on}, restored from a snapshot` }
  if (report.unrecorded)
    return {
      mark: '✅',
      sentence: `First install of ${subjectName(report)} ${after} ${on}; it replaced files that this action had not installed`,
    }
  if (before === null) return { mark: '✅', sentence: `First install of ${subjectName(report)} ${after} ${on}` }
  if (before !== after) return { mark: '✅', sentence: `${subjectName(report)} ${before} → ${after} ${on}` }
  return { mark: '✅', sentence: describeSame(report, after) }
}

/** Describes a run that changed a host on which the version was already installed. */
function describeSame(report: LocalReport, version: string): string {
  const { host_id: host, drift = [], steps, artifact_sha256: now, previous_sha256: before } = report
  const there = `${subjectName(report)} ${version}`
  if (!hasMovedParts(report)) {
    const hasWritten = steps.some(({ action, status }) => action === 'write_env' && status === 'done')
    return `${there} was already on ${host}${hasWritten ? '; its settings were written' : ', and was changed'}`
  }
  if (drift.some(isOfReplaced)) return `${there} was repaired on ${host}`
  if (hasOtherParts(report)) return `${subjectName(report)} ${describeParts(version, report)} on ${host}`
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

function describeUnchanged({ report, plannedSteps, dryRun }: RunResult): Headline {
  const { host_id: host, previous_version: before, state } = report
  const after = report.version ?? report.requested_version ?? 'unknown'
  const there = `${subjectName(report)} ${after}`
  if (isCheck(report)) return describeCheck(report, `${there} on ${host}`)
  if (state !== 'succeeded') {
    const move =
      before === null
        ? `first install of ${there}`
        : before === after
          ? there
          : `${subjectName(report)} ${before} → ${after}`
    return { mark: '🔎', sentence: `Dry run: ${move} on ${host} would ${dryRun?.inWords() ?? 'change nothing'}` }
  }
  // A new version of a project may consist of the parts that are installed.
  const isNewVersion = before !== null && before !== after
  const present = isNewVersion
    ? `${subjectName(report)} ${before} → ${after} on ${host}`
    : `${there} is already on ${host}`
  const { drift = [] } = report
  const acted = actingSteps(report)
  const starters = plannedSteps.flatMap(({ id, isIdle }) => (isIdle && acted.includes(id) ? [id] : []))
  if (starters.length > 0)
    return {
      mark: '✅',
      sentence: `${present}; ${listNames(starters)} started services that were not running this version`,
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
function describeCheck(report: LocalReport, there: string): Headline {
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

/** The parts that the health checks of a run have examined. */
export type CheckedParts =
  | { readonly extent: 'none' | 'all' }
  /** `inWords` names the parts: `cart (1 of 3 parts)`. */
  | { readonly extent: 'some'; readonly inWords: string }

/** Counts only checks that passed and had a part to examine. */
export function checkedParts({ steps }: Pick<LocalReport, 'steps'>): CheckedParts {
  const passed = steps.filter(({ action, status }) => action === 'healthcheck' && status === 'done')
  const ids = new Set(passed.flatMap(({ checked = [] }) => checked))
  const parts = steps.filter(({ action, status }) => isInstallAction(action) && status !== 'not_run').length
  if (ids.size === 0) return { extent: 'none' }
  if (ids.size >= parts) return { extent: 'all' }
  return { extent: 'some', inWords: `${listNames([...ids])} (${ids.size} of ${countInWords(parts, 'part')})` }
}

/** A step that failed may have done all or part of its work. */
const RAN: ReadonlySet<string> = new Set(['done', 'warned', 'failed'])

/** The ids of the steps that ran and may have changed more than files. */
export function actingSteps({ steps }: LocalReport): string[] {
  return steps.flatMap(({ id, action, status }) => (isHostAction(action) && RAN.has(status) ? [id] : []))
}

/** True if a step moved a part into its place or removed a part. */
export function hasMovedParts({ steps }: Pick<LocalReport, 'steps'>): boolean {
  return steps.some(({ action, status }) => (isInstallAction(action) || action === 'remove') && status === 'done')
}

/**
 * True if a run was killed while its plan ran. In that case, no entry names the step that was running. A plan that
 * failed has an entry for each of its steps.
 */
export function mayHaveRunUnlisted({ outcome, error, states, steps }: LocalReport): boolean {
  if (outcome === 'success' || error?.code !== 'interrupted') return false
  const hasBegun = states.some(({ state }) => state === 'installing')
  return hasBegun && !steps.some(({ status }) => status === 'failed' || status === 'not_run')
}

/** The `provision` steps that ran: no rollback undoes their work. */
export function provisionSteps({ steps }: LocalReport): LocalReport['steps'] {
  return steps.filter(({ action, status }) => action === 'provision' && RAN.has(status))
}

/** The ending of a run in one line: a mark, and a sentence that is clear without the mark and has no final period. */
export interface Headline {
  readonly mark: string
  readonly sentence: string
}

/** The name of the deployed plugin, service or project in a sentence. */
function subjectName({ slug, id }: LocalReport): string {
  return slug ?? id ?? 'This deployment'
}

/** True if a run ended without a change of its own, on a host that an earlier run has left in an uncertain state. */
export function isUncertainBefore({ outcome, rollback }: LocalReport): boolean {
  return outcome === 'inconsistent' && rollback === null
}
