import { join } from 'node:path'
import { z } from 'zod/mini'
import { reportStatusOf } from '../../core/outcome.ts'
import { createFile, replaceFile } from '../files/durable-files.ts'
import type { Layout } from '../host/layout.ts'
import { readStateFileSync } from '../host/state-file.ts'
import type { Redaction } from '../transaction/context.ts'
import { type DeploymentEnd, deploymentEndSchema } from '../transaction/end.ts'
import { deploymentFactsSchema, stateEntrySchema, stepEntrySchema } from '../transaction/facts.ts'
import { redactTexts } from '../transaction/journal/redaction.ts'
import type { DeploymentRecord } from '../transaction/record.ts'

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
    running_version: z._default(z.nullable(z.string()), null),
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
export type Circumstances = Pick<LocalReport, 'reported' | 'running_version'>

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
 * Writes the redacted report, completely or not at all, with mode 0600. Returns its path. Every process derives the
 * same path, so there is at most one local report for each deployment. If two deployments of one slug started in the
 * same millisecond, the report that is written later also has its deployment's id in its name.
 */
export async function writeLocalReport({ layout, secrets }: ReportFolder, report: LocalReport): Promise<string> {
  const text = textOf(report, secrets)
  const [path, longer] = possiblePaths(layout, report)
  if (await createFile(path, text)) return path
  const own = readReportOf(path, report.deployment_id) === undefined ? longer : path
  await replaceFile(own, text)
  return own
}

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
export function isReportedAlike(one: Ending, other: Ending): boolean {
  const isSameStatus = reportStatusOf(one.outcome) === reportStatusOf(other.outcome)
  return isSameStatus && one.rollback?.restored === other.rollback?.restored
}

type Ending = Pick<DeploymentEnd, 'outcome' | 'rollback'>

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
export function readReportOf(path: string, deploymentId: string): LocalReport | undefined {
  try {
    const report = localReportSchema.parse(JSON.parse(readStateFileSync(path) ?? ''))
    return report.deployment_id === deploymentId ? report : undefined
  } catch {
    return undefined
  }
}

function findReport(layout: Layout, named: Named): FoundReport | undefined {
  for (const path of possiblePaths(layout, named)) {
    const report = readReportOf(path, named.deployment_id)
    if (report !== undefined) return { path, report }
  }
  return undefined
}

function possiblePaths(layout: Layout, { started_at, slug, deployment_id: id }: Named): [string, string] {
  const name = `${started_at.replaceAll(':', '-')}-${slug ?? id}`
  return [join(layout.reports, `${name}.json`), join(layout.reports, `${name}-${id}.json`)]
}

/** Replaces the report at this path, redacted, and returns the path. Throws file system errors. */
export async function rewriteLocalReport(
  { secrets }: ReportFolder,
  path: string,
  report: LocalReport,
): Promise<string> {
  await replaceFile(path, textOf(report, secrets))
  return path
}

function textOf(report: LocalReport, secrets: Redaction): string {
  return `${JSON.stringify(redactReport(contractOf(report), secrets), null, 2)}\n`
}
