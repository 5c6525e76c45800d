import { readdirSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod/mini'
import { DeploymentError } from '../../core/errors.ts'
import { DEFAULT_PLUGINS_DIRECTORY } from '../../core/identifiers.ts'
import { type Outcome, reportStatusOf } from '../../core/state-machine.ts'
import { asSentence } from '../../core/text.ts'
import { createFile, replaceFile } from '../files/durable.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { pathExistsSync } from '../files/walk.ts'
import {
  byNumber,
  installPath,
  isSamePlace,
  type Layout,
  nameOf,
  nextNumber,
  placeAt,
  placeOf,
} from '../host/layout.ts'
import { readHostsDirectory } from '../host/plugins-directory.ts'
import { presentRow, versionInPlace } from '../host/previous-install.ts'
import { readInstalled } from '../host/record.ts'
import { type InstalledRow, newestInstallation } from '../host/rows.ts'
import { readStateFileSync } from '../host/state-file.ts'
import {
  type DeploymentEnd,
  type DeploymentFacts,
  deploymentEndSchema,
  deploymentFactsSchema,
  nameRun,
  pathOfEntry,
  stateEntrySchema,
  stepEntrySchema,
} from '../journal/facts.ts'
import { redactTexts } from '../journal/journal.ts'
import { readJournal } from '../journal/read.ts'
import { type CommitRecord, findCommit, type JournalRecord, pendingChanges } from '../journal/records.ts'
import type { DeploymentRecord, Redaction } from '../transaction/record.ts'
import { isOnlyAdded } from '../trees/drift.ts'

const reportedSchema = z.lazy(() =>
  z.object({ accepted: z.boolean(), attempts: z.number(), error: z.nullable(z.string()) }),
)
/** The result of sending the report to the hub. */
export type Reported = z.infer<typeof reportedSchema>

/** A deployment's report on this host (docs/files.md, "Local report"). It contains no secret. */
export const localReportSchema = z.lazy(() =>
  z.extend(deploymentFactsSchema.def.getter(), {
    ...deploymentEndSchema.def.getter().shape,
    schema: z.literal(1),
    /**
     * The version that the host runs now; null if nothing is installed, or if the host may have neither version intact.
     */
    running_version: z.nullable(z.string()),
    status: z.enum(['success', 'failed', 'rolled_back']),
    state: z.string(),
    duration_ms: z.number(),
    states: z.array(stateEntrySchema),
    steps: z.array(stepEntrySchema),
    reported: reportedSchema,
  }),
)
export type LocalReport = z.infer<typeof localReportSchema>

/** Returns the result for a report that was not sent, or not yet. */
export function notSent(reason: string | null): Reported {
  return { accepted: false, attempts: 0, error: reason }
}

/** The fields of a report that depend on neither the run nor its end. */
type Circumstances = Pick<LocalReport, 'reported' | 'running_version'>

export function buildLocalReport(
  record: DeploymentRecord,
  end: DeploymentEnd,
  { reported, running_version }: Circumstances,
): LocalReport {
  const { facts, states, steps } = record
  return {
    schema: 1,
    ...facts,
    drift: driftAfter(end, facts.drift),
    ...end,
    running_version,
    status: reportStatusOf(end.outcome),
    state: states.at(-1)?.state ?? 'pending',
    duration_ms: Math.max(0, Date.parse(end.completed_at) - Date.parse(facts.started_at)),
    states: [...states],
    steps: [...steps],
    reported,
  }
}

/** Names snapshots only after success: a rollback has moved the trees back from them. */
function driftAfter({ outcome }: DeploymentEnd, drift: LocalReport['drift'] = []): NonNullable<LocalReport['drift']> {
  return outcome === 'success' ? drift : drift.map(({ snapshot: _, ...entry }) => entry)
}

/** Fields that contain no foreign text, and must stay readable whatever a secret looks like. */
const OWN_WORDS: ReadonlySet<string> = new Set([
  'deployment_id',
  'contract',
  'kind',
  'status',
  'outcome',
  'state',
  'at',
  'action',
  'code',
  'shelf',
  'directory',
  'instead',
  'started_at',
  'completed_at',
])

/**
 * Removes all secrets from the texts of the report. Redacts each text separately, never the JSON, because a hub could
 * issue a token whose removal breaks the syntax.
 */
export function redactReport(report: LocalReport, secrets: Redaction): LocalReport {
  return redactTexts(report, secrets.redact, OWN_WORDS) as LocalReport
}

/**
 * Returns the report as it is written to files. Omits what steps did and checked, and the fields `previous_sha256`,
 * `unrecorded` and `signature_valid`. People read these facts in the log and the summary, and a process that recovers
 * this run reads them in the journal.
 */
export function contractOf({
  previous_sha256: _,
  unrecorded: __,
  signature_valid: ___,
  ...report
}: LocalReport): LocalReport {
  return { ...report, steps: report.steps.map(({ did: _, checked: __, ...step }) => step) }
}

/** The folder for reports, and the redaction for every file in it. */
export type ReportFolder = { readonly layout: Layout; readonly secrets: Redaction }

/**
 * Writes the redacted report, completely or not at all, with mode 0600. Returns its path. Every process finds the same
 * report, so there is at most one for each deployment. Its name begins with a number, in the order of the reports. If
 * two deployments of one slug started in the same millisecond, the report that is written later may also have its
 * deployment's id in its name.
 */
export async function writeLocalReport(folder: ReportFolder, report: LocalReport): Promise<string> {
  const { layout, secrets } = folder
  const known = findReport(layout, report)
  if (known !== undefined) return await rewriteLocalReport(folder, known.path, report)
  const number = String(nextNumber(reportNames(layout.reports))).padStart(NUMBER_DIGITS, '0')
  const [name, longer] = endsOf(report).map(end => join(layout.reports, `${number}${end}`)) as [string, string]
  if (await createFile(name, textOf(report, secrets))) return name
  return await rewriteLocalReport(folder, longer, report)
}

/** So many digits that a listing by name is in order. */
const NUMBER_DIGITS = 6

/**
 * If the hub has already accepted a report of this deployment for which `isReportedAlike` is true, returns the local
 * report's entry about the hub.
 */
export function findAccepted(layout: Layout, report: LocalReport): Reported | undefined {
  const known = findReport(layout, report)?.report
  return known?.reported.accepted && isReportedAlike(known, report) ? known.reported : undefined
}

/**
 * True if the hub needs no second report: both ends have the same status, and neither of them has restored what the
 * other could not.
 */
export function isReportedAlike(one: Reportable, other: Reportable): boolean {
  const isSameStatus = reportStatusOf(one.outcome) === reportStatusOf(other.outcome)
  return isSameStatus && one.rollback?.restored === other.rollback?.restored
}

type Reportable = Pick<DeploymentEnd, 'outcome' | 'rollback'>

/**
 * Notes that the hub accepted a report after the end of its run. Never throws: at worst, the hub gets the report twice.
 */
export async function noteAccepted(folder: ReportFolder, sent: Named, attempts: number): Promise<void> {
  const found = findReport(folder.layout, sent)
  if (found === undefined) return
  const reported: Reported = { accepted: true, attempts, error: null }
  await rewriteLocalReport(folder, found.path, { ...found.report, reported }).catch(() => {})
}

/**
 * Rewrites the report of a deployment that has ended, and returns its path and new content. Returns undefined if there
 * is no report. Throws file system errors.
 */
export async function completeLocalReport(
  folder: ReportFolder,
  named: Named,
  complete: (report: LocalReport) => LocalReport,
): Promise<FoundReport | undefined> {
  const found = findReport(folder.layout, named)
  if (found === undefined) return undefined
  const report = redactReport(complete(found.report), folder.secrets)
  return { path: await rewriteLocalReport(folder, found.path, report), report }
}

type Named = Pick<LocalReport, 'started_at' | 'slug' | 'deployment_id'>

export interface FoundReport {
  readonly path: string
  readonly report: LocalReport
}

/** Returns the report at a path, or undefined if no valid report of this deployment is there. Never throws. */
function readReportOf(path: string, deploymentId: string): LocalReport | undefined {
  try {
    const report = localReportSchema.parse(JSON.parse(readStateFileSync(path) ?? ''))
    return report.deployment_id === deploymentId ? report : undefined
  } catch {
    return undefined
  }
}

function findReport({ reports }: Layout, named: Named): FoundReport | undefined {
  const ends = endsOf(named)
  const names = reportNames(reports).filter(name => ends.some(end => name.endsWith(end)))
  return readFirst(reports, names, named.deployment_id)
}

/** Returns what the name of a deployment's report has after its number: usually the first, else the second. */
function endsOf({ started_at, slug, deployment_id: id }: Named): [string, string] {
  const name = `-${started_at.replaceAll(':', '-')}-${slug ?? id}`
  return [`${name}.json`, `${name}-${id}.json`]
}

/** Returns the first of these reports that is of this deployment. */
function readFirst(folder: string, names: readonly string[], deploymentId: string): FoundReport | undefined {
  for (const name of names) {
    const path = join(folder, name)
    const report = readReportOf(path, deploymentId)
    if (report !== undefined) return { path, report }
  }
  return undefined
}

/** Replaces the report at this path, redacted, and returns the path. Throws file system errors. */
export async function rewriteLocalReport(
  { secrets }: Pick<ReportFolder, 'secrets'>,
  path: string,
  report: LocalReport,
): Promise<string> {
  await replaceFile(path, textOf(report, secrets))
  return path
}

/**
 * Writes the redacted report of a run that can write no report below a project root: into the runner's temporary
 * folder, completely or not at all, with mode 0600. Returns its path. Never replaces an existing file.
 */
export async function writeReportElsewhere(
  { secrets }: Pick<ReportFolder, 'secrets'>,
  temporaryFolder: string,
  report: LocalReport,
): Promise<string> {
  const path = join(temporaryFolder, `hub-deploy-report-${report.deployment_id}.json`)
  if (await createFile(path, textOf(report, secrets))) return path
  throw new DeploymentError('host_not_writable', `${path} already exists: remove it.`)
}

function textOf(report: LocalReport, secrets: Redaction): string {
  return `${JSON.stringify(redactReport(contractOf(report), secrets), null, 2)}\n`
}

/**
 * Returns the version of this plugin, service or project that the host runs after a deployment with this outcome; null
 * if nothing is installed, or if the host may have neither version intact. Never throws.
 */
export function runningAfter(layout: Layout, facts: DeploymentFacts, outcome: Outcome): string | null {
  if (outcome === 'inconsistent') return null
  return outcome === 'success' ? facts.version : readRunningVersion(layout, facts)
}

/**
 * Returns the version that the host runs: the one that a run has committed but not recorded yet, else the one in the
 * host's record, else the one that this deployment found installed. Returns null while another run may be changing the
 * version, or if the version's directories are gone or cannot be examined. Never throws.
 */
export function readRunningVersion(layout: Layout, facts: DeploymentFacts): string | null {
  const journal = orNone(() => readJournal(layout.journal) ?? [])
  const commit = findCommit(journal)
  if (commit === undefined && isChanging(journal, facts)) return null
  const own = rowsAfter(
    commit,
    orNone(() => readInstalled(layout)),
  ).filter(row => isOf(row, facts))
  if (own.length === 0) return facts.previous_version
  const present = own.flatMap(row => presentIn(layout, row, facts) ?? [])
  const versions = present.map(row => versionInPlace(layout, row, isModifiedIn(facts, row)))
  if (facts.contract !== 'project') return versions[0] ?? null
  const isWhole = present.length === own.length && versions.every((version, at) => version === present[at]?.version)
  return isWhole ? newestProjectVersion(present) : null
}

/** Returns the recorded rows, apart from those that a commit replaces or removes, and the committed ones. */
function rowsAfter(commit: CommitRecord | undefined, recorded: readonly InstalledRow[]): readonly InstalledRow[] {
  if (commit === undefined) return recorded
  const changed = new Set([...commit.rows, ...commit.removed].map(nameOf))
  return [...commit.rows, ...recorded.filter(row => !changed.has(nameOf(row)))]
}

/** True if this run found that files of a part were changed or removed. */
function isModifiedIn({ drift = [] }: DeploymentFacts, row: InstalledRow): boolean {
  return drift.some(
    entry => entry.compared !== false && !isOnlyAdded(entry) && isSamePlace(placeAt(pathOfEntry(entry)), placeOf(row)),
  )
}

/**
 * True if a run that has the host, or was killed while it had the host, has announced changes of this origin and has
 * not undone them.
 */
function isChanging(journal: readonly JournalRecord[], { contract, slug }: DeploymentFacts): boolean {
  const [begin] = journal
  const isOfThis = begin?.record === 'begin' && begin.facts.contract === contract && begin.facts.slug === slug
  return isOfThis && pendingChanges(journal).length > 0
}

/** Returns the project version of the part that was installed last. */
export function newestProjectVersion(rows: readonly InstalledRow[]): string | null {
  const newest = rows.toSorted((a, b) => newestInstallation([a]) - newestInstallation([b])).at(-1)
  return newest?.project_version ?? null
}

function isOf({ contract, kind, slug }: InstalledRow, facts: DeploymentFacts): boolean {
  return contract === facts.contract && slug === facts.slug && (contract === 'project' || kind === facts.kind)
}

/**
 * Returns the row with its present directory; undefined if nothing is there, or if that cannot be examined. The operator
 * may have moved a plugin to the directory that this run or the host uses.
 */
function presentIn(
  layout: Layout,
  row: InstalledRow,
  { directory = DEFAULT_PLUGINS_DIRECTORY }: DeploymentFacts,
): InstalledRow | undefined {
  try {
    const present = presentRow(layout, presentRow(layout, row, directory), readHostsDirectory(layout).directory)
    return pathExistsSync(installPath(layout, placeOf(present))) ? present : undefined
  } catch {
    return undefined
  }
}

/** Ignores a record that cannot be read: the code that needs the record reports the error. */
function orNone<T>(read: () => readonly T[]): readonly T[] {
  try {
    return read()
  } catch {
    return []
  }
}

/** The maximum number of reports to read. The run in question ended recently, so its report is among the newest. */
const MAX_READ = 200

/** Returns the local report of the deployment with this id, if it is among the newest 200 reports. Never throws. */
export function findEndedReport({ reports }: Layout, deploymentId: string): FoundReport | undefined {
  return readFirst(reports, byNumber(reportNames(reports)).reverse().slice(0, MAX_READ), deploymentId)
}

function reportNames(folder: string): string[] {
  try {
    return readdirSync(folder).filter(name => name.endsWith('.json'))
  } catch {
    return []
  }
}

/** Describes in one sentence how an interrupted deployment ended, and, if known, which version the host runs now. */
export function describeRecovered(report: LocalReport): string {
  return `The interrupted ${nameRun(report)} was recovered: ${describeEnd(report)}.`
}

/** Describes in a clause how a deployment ended. */
export function describeEnd({ outcome, running_version: running }: LocalReport): string {
  return ENDS[outcome](running)
}

const ENDS: Record<Outcome, (running: string | null) => string> = {
  success: running => `it had been completed, and ${runs(running)}`,
  failed: running => `it had changed no file, and ${runs(running, ' still')}`,
  rolled_back: running => `it was rolled back${running === null ? `, and ${runs(running)}` : ` to ${running}`}`,
  interrupted: () => 'how it ended is not known, so check this host',
  inconsistent: () => 'not all files could be restored, so check this host',
}

function runs(version: string | null, still = ''): string {
  return version === null ? 'no version is known to run' : `${version}${still} runs`
}

/**
 * Returns a warning for the operator if the version that a rollback restored is not healthy, or if a service could not
 * be restored. Otherwise returns undefined.
 */
export function restoredUnhealthy(report: LocalReport): string | undefined {
  if (report.rollback?.healthy !== false) return undefined
  const problems = rollbackProblems(report).join(' ')
  const { slug, previous_version: version, host_id: host } = report
  if (version === null && report.unrecorded !== true)
    return `A deployment of ${slug} was rolled back, but a service on ${host} is not as it was before: repair that service. ${problems}`
  const restored = version === null ? 'the previous version' : version
  return `A deployment of ${slug} was rolled back, but ${restored}, which is installed again, is not healthy on ${host}: repair its service, or correct its health check. ${problems}`
}

/**
 * Describes the problems of a rollback, one sentence each, for a reader who has just read the cause. If a restart fails
 * for the old version as it did for the new one, does not repeat that sentence. An unhealthy old version always gets
 * its own sentence.
 */
export function rollbackProblems({ rollback, error }: Pick<LocalReport, 'rollback' | 'error'>): string[] {
  const cause = error === null || error.code === 'unhealthy' ? undefined : withoutStep(error)
  return (rollback?.problems ?? []).map(problem =>
    cause === problem || cause?.startsWith(`${problem} `) ? 'The same happened again.' : asSentence(problem),
  )
}

/** Returns the message without the id of the failed step. */
export function withoutStep({ message, step }: NonNullable<LocalReport['error']>): string {
  return step !== null && message.startsWith(`${step}: `) ? message.slice(step.length + 2) : message
}

const NAME =
  /^(?:\d+-)?\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-(.+?)(-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?\.json$/

/**
 * Removes the oldest local reports of the plugin, service or project with this slug until `keep` are left. A null slug
 * means the reports of runs that ended before they knew what to deploy. Their numbers decide which are the oldest.
 * Never removes `report` itself, or a file whose name does not look like a report's. Never throws.
 */
export function pruneReports(report: string, slug: string | null, keep: number): void {
  const [folder, newest] = [dirname(report), basename(report)]
  const isOfThis = slug === null ? isNamelessIn(folder) : (name: string) => slugOf(name) === slug
  const others = reportNames(folder).filter(name => name !== newest && isOfThis(name))
  const excess = others.length + 1 - Math.max(keep, 1)
  if (excess <= 0) return
  for (const name of byNumber(others).slice(0, excess)) tryUnlinkSync(join(folder, name))
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
