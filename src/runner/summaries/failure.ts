import type { DeployError, ErrorCode } from '../../core/errors.ts'
import { alert, cell, cellOf, cleanForeignText, code, countInWords, words } from '../../core/text.ts'
import { SourceError } from '../../core/yaml/problems.ts'
import {
  type LocalReport,
  restoredUnhealthy,
  rollbackProblems,
  withoutStep,
} from '../../install/reports/local-report.ts'
import { isUncertainBefore, mayHaveRunUnlisted, neverStopped, provisionSteps } from './outcome.ts'

const MAX_PROBLEMS = 20
const MAX_PROBLEM_CHARS = 500
export const MAX_ID_CHARS = 130
const LINE_BREAK = '\\\n'

/** Returns a block for the top of the summary if a version or service is unhealthy after a rollback. */
export function alarm(report: LocalReport): string[] {
  const sentence = restoredUnhealthy(report)
  return sentence === undefined ? [] : [alert('CAUTION', [`**${cell(sentence)}**`])]
}

/** Says why the run failed, what to do next, and which version is running now. */
export function failureBlocks(report: LocalReport, error: DeployError | undefined): string[] {
  const cause = report.error ?? (error && { code: error.code, message: error.message, step: null })
  if (cause === undefined) return report.outcome === 'success' ? [] : [`**Now:** ${now(report)}`]
  const why = `${stepOf(report, cause.step)}${cell(withoutStep(cause))}`
  return causeBlocks({ code: cause.code, why, next: nextOf(report, cause.code, error), error }, [
    `**Now:** ${now(report)}`,
  ])
}

/** Says why a run that deploys nothing failed, and what to do next. */
export function readingFailure(error: DeployError | undefined): string[] {
  if (error === undefined) return []
  return causeBlocks({ code: error.code, why: cell(error.message), next: nextStep(error.code, error), error }, [])
}

/** The advice about the host comes before the advice about the cause. */
function nextOf(report: LocalReport, cause: ErrorCode, error: DeployError | undefined): string {
  const { outcome, rollback, host_id: host } = report
  if (outcome === 'inconsistent' && cause !== 'inconsistent' && rollback?.restored === true) return AFTER_DAMAGE
  if (outcome === 'inconsistent') return nextStep(cause === 'inconsistent' ? cause : 'rollback_failed', undefined)
  const left = [
    ...(rollback?.healthy === false ? [`Repair ${host} first: no healthy version is running there.`] : []),
    ...(rollbackProblems(report).length > 0 && rollback?.healthy !== false ? ['Check the problems listed below.'] : []),
    ...toCheck(report),
  ]
  const calm = left.length === 0 && ENDED_EARLY.has(cause) ? ['Nothing to repair.'] : left
  const publisher =
    cause === 'invalid_plan' && report.contract === 'project'
      ? ['If the plan came with the project, the publisher must fix it.']
      : []
  return [...calm, nextStep(cause, error), ...publisher].join(' ')
}

/**
 * The rollback is complete, so no run repeats it, but the restored files are damaged or could not be compared with
 * their record.
 */
const AFTER_DAMAGE = 'Follow docs/operating.md, "The host is inconsistent": install the old version again.'

/** The advice for these codes does not mention the state in which the run leaves the host. */
const ENDED_EARLY: ReadonlySet<ErrorCode> = new Set(['cancelled', 'interrupted'])

/** No rollback undoes the work of a provision step, so the operator must check it. */
function toCheck(report: LocalReport): string[] {
  const ids = provisionSteps(report).map(({ id }) => `\`${cleanForeignText(id, MAX_ID_CHARS).replaceAll('`', '')}\``)
  if (ids.length > 0) return [`Check what ${ids.slice(0, MAX_PROBLEMS).join(', ')} did.`]
  return mayHaveRunUnlisted(report) ? ['If the plan has a `provision` step, check whether it ran.'] : []
}

interface Cause {
  readonly code: ErrorCode
  /** In Markdown. */
  readonly why: string
  readonly next: string
  readonly error: DeployError | undefined
}

/** Lists several problems instead of a sentence that names only the first one. */
function causeBlocks({ code: name, why, next: advice, error }: Cause, more: readonly string[]): string[] {
  const problems = listProblems(error)
  const next = `**Next:** ${words(advice)}`
  if (problems.length === 0) return [[`**Why:** ${why} (${code(name)})`, next, ...more].join(LINE_BREAK)]
  const count = error instanceof SourceError ? error.problems.length : problems.length
  return [`**Why:** ${countInWords(count, 'problem')} (${code(name)})`, ...problems, [next, ...more].join(LINE_BREAK)]
}

function stepOf({ steps }: LocalReport, id: string | null): string {
  const action = steps.find(step => step.id === id)?.action
  if (id === null) return ''
  return `step ${code(id)}${action === undefined ? '' : ` (${cell(action)})`}: `
}

function now(report: LocalReport): string {
  const { outcome, running_version: version, rollback } = report
  if (outcome === 'success') return `${cell(version ?? 'nothing')} is installed.`
  if (isUncertainBefore(report)) return 'not certain until this host is repaired; this run installed nothing.'
  if (outcome === 'inconsistent') return withProblems('not certain; perhaps neither version is complete.', report)
  if (outcome === 'interrupted') return 'not known until the next run has recovered this host.'
  if (report.error?.code === 'locked')
    return 'not known; another deployment on this host is in progress or was interrupted.'
  if (rollback === null && version !== null) return `${cell(version)}${healthNow(report)}.`
  if (rollback === null) return unexamined(report)
  const isModified = version === null && report.previous_version !== null
  const none =
    report.unrecorded || isModified
      ? `the files that were there before are back${isModified ? ' (modified, of no known version)' : ''}`
      : 'nothing is installed, as before'
  const running = version === null ? none : cell(version)
  return withProblems(`${running}${filesNow(report)}${servicesNow(report)}.`, report)
}

/** Says how the version is that a run has not touched. */
function healthNow({ error, steps }: LocalReport): string {
  if (error?.code === 'unhealthy') return ' is installed, but **not healthy**'
  const isChecked = steps.some(({ action, status }) => action === 'healthcheck' && status === 'failed')
  return isChecked ? ' is installed, but not known to be healthy' : ', as before'
}

/** A run that has left `pending` has examined what is installed: if its report names no version, none was installed. */
function unexamined({ states, error, previous_version: before, unrecorded }: LocalReport): string {
  const hasBegun = states.some(({ state }) => state !== 'pending')
  if (hasBegun && before === null && unrecorded !== true) return 'nothing is installed, as before.'
  return error !== null && NOT_EXAMINED.has(error.code)
    ? 'not examined; nothing was changed.'
    : 'as before: nothing was changed.'
}

/** Refusals that happen before the host is read. */
const NOT_EXAMINED: ReadonlySet<ErrorCode> = new Set([
  'missing_input',
  'invalid_input',
  'unsafe_host',
  'host_not_writable',
])

function filesNow({ outcome, rollback, running_version: version }: LocalReport): string {
  if (rollback === null || version === null || outcome === 'failed') return ''
  if (!rollback.restored) return ', but not every file change could be undone'
  if (rollback.verified === true) return ', all files as they were installed'
  return rollback.verified === false ? ', but not all files are as before' : ', its files restored'
}

function servicesNow({ rollback }: LocalReport): string {
  if (rollback === null || rollback.healthy === false) return rollback === null ? '' : ', **not healthy**'
  const checked = rollback.healthy ? ', healthy according to the checks of this plan' : ''
  return `${checked}${neverStopped({ rollback })}`
}

/** Adds the problems of a rollback, except for an unhealthy version, whose problems the alarm already names. */
function withProblems(sentence: string, report: LocalReport): string {
  if (report.rollback?.healthy === false) return sentence
  const problems = rollbackProblems(report)
  const more = problems.length - MAX_PROBLEMS
  const lines = problems.slice(0, MAX_PROBLEMS).map(found => `- ${cellOf(found, MAX_PROBLEM_CHARS)}`)
  if (lines.length === 0) return sentence
  return [sentence, '', ...lines, ...(more > 0 ? [`- and ${more} more, which the local report lists`] : [])].join('\n')
}

/**
 * Returns advice about an error, in a sentence or two. The error's message comes first and names the remedy; the advice
 * adds what the message leaves out. docs/errors.md explains each code in full.
 */
export function nextStep(code: ErrorCode, error: DeployError | undefined): string {
  const known = NEXT[code]
  return error?.code === code && error.next !== undefined ? `${error.next}. ${known}` : known
}

const UNTIL_CORRECTED = 'Until the problem is corrected, you can deploy an earlier version: set `version` to it.'

const NEXT: Readonly<Record<ErrorCode, string>> = {
  missing_input:
    'If a secret is empty: a job gets the secrets of an environment only if it names that environment, and a pull request from a fork gets none.',
  invalid_input: "The action's README says what each input accepts.",
  invalid_plan: 'Correct every problem that is named here.',
  invalid_host_config: 'Correct every problem that is named here.',
  network: "Try `curl -v` with that URL as the runner's user: it shows how far a connection gets.",
  timeout: 'Run again later. For a large artifact, raise `timeout-minutes`.',
  bad_response: "A proxy or a login page may answer in the hub's place: `curl -i` with that URL shows what answers.",
  insecure_url:
    "Use https; `allow-http` is for closed test networks. If the hub supplied the URL, the hub's administrator must correct it.",
  not_found: 'If the hub serves its routes below a path, the URL of the hub must include that path.',
  authentication_failed: 'If a key, credential or token was revoked, get a new one and store it in the secret.',
  no_published_version: 'If no version is published, ask the publisher whether one is held back or withdrawn.',
  artifact_unavailable:
    'After HTTP 429 or 5xx, run again later. If the remedy above does not help, ask the administrator of the hub.',
  missing_signature: 'Do not work around this check: install only signed versions.',
  invalid_signature_format: 'Do not work around this check: install only signed versions.',
  signature_mismatch: 'Do not deploy this version until you know the cause.',
  digest_mismatch: 'The release gate or the publisher knows which digest is the right one.',
  untrusted_signer: 'Ask through a channel other than the hub, and deploy nothing until you have the answer.',
  decryption_failed: 'If the remedy above does not help, ask the administrator of the hub.',
  invalid_archive: 'If the new archive is refused too, the publisher should pack it with another tool.',
  unsafe_archive: 'Do not install this version; ask the publisher why it contains such an entry.',
  archive_too_large: 'If the archive is not meant to be that large, ask the publisher what it contains.',
  empty_artifact: UNTIL_CORRECTED,
  not_a_plugin: UNTIL_CORRECTED,
  invalid_manifest: UNTIL_CORRECTED,
  content_mismatch: UNTIL_CORRECTED,
  source_not_supported: 'Only a project with parts from git needs git on the host.',
  unpinned_source: UNTIL_CORRECTED,
  version_mismatch: UNTIL_CORRECTED,
  downgrade_refused: 'If nobody rolled back on purpose, ask the publisher which of the two versions is newer.',
  version_reused: 'The publisher should release changed bytes as a new version.',
  disk_full:
    'If the disk of `project-root` is full, lower `keep-snapshots`, so that fewer old versions are kept there.',
  host_not_writable: 'Correct the cause, then run again.',
  unsafe_host:
    'See docs/security.md, "Who may write to the project root", or, if a path cannot be moved, docs/operating.md, "Mounts and permissions".',
  locked: 'If that deployment never ends, see docs/operating.md, "The lock is held".',
  step_failed: 'Correct the cause, then run again.',
  step_timed_out:
    'Find out what the command is waiting for. If a command of the host config needs more time, raise its `timeout` there.',
  unhealthy: 'Correct the version, the service or its health check, then run again.',
  cancelled: 'Run again when you want to.',
  interrupted: 'Find out what killed the run (a lack of memory, a reboot or a time limit), then run again.',
  report_refused: 'Nothing to repair on this host.',
  rollback_failed:
    'Follow docs/operating.md, "The host is inconsistent", which says when the next run tries the rollback again.',
  inconsistent: 'Follow docs/operating.md, "The host is inconsistent". Nothing is deployed until the host is repaired.',
  place_taken: 'The status action lists the parts of this host, and the directories that have no record.',
  unexpected_part: UNTIL_CORRECTED,
  fleet_out_of_sync: 'If hosts are listed below, begin with those at the top.',
  drift_found:
    'If files were changed, find out who changed them. Deploying the version again repairs them; the changed files stay as a snapshot.',
  no_snapshot: 'The status action lists the versions that this host has retained.',
  snapshot_modified: 'The status action lists the other versions that this host has retained.',
  not_installed: 'The status action shows what is installed, and which files differ.',
  internal_error: 'Report this error, with the log of this step.',
}

/** More problems than the annotations show; the log lists all of them. */
const MAX_LISTED_PROBLEMS = 30
const MAX_FILE_CHARS = 200
const MAX_MESSAGE_CHARS = 500

/**
 * Lists at most 30 problems of a plan or host config as one block, because the failure's sentence names only the first.
 */
function listProblems(error: Error | undefined): string[] {
  if (!(error instanceof SourceError) || error.problems.length < 2) return []
  const lines = error.problems
    .slice(0, MAX_LISTED_PROBLEMS)
    .map(
      ({ file, line, column, message }) =>
        `- ${code(`${cleanForeignText(file, MAX_FILE_CHARS)}:${line}:${column}`)} ${cellOf(message, MAX_MESSAGE_CHARS)}`,
    )
  const more = error.problems.length - lines.length
  return [[...lines, ...(more > 0 ? [`- and ${more} more, which the log lists`] : [])].join('\n')]
}
