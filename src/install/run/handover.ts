import { createHash } from 'node:crypto'
import { z } from 'zod/mini'
import { toDeployError } from '../../core/errors.ts'
import { idSchema } from '../../core/identifiers.ts'
import { asSentence } from '../../core/text.ts'
import { pathExistsSync } from '../files/walk.ts'
import type { Layout } from '../host/layout.ts'
import { requireOwnKinds, requireSafeHost } from '../host/ownership.ts'
import { pendingIn, readInstalled, recordPending } from '../host/record.ts'
import { timeSchema } from '../host/rows.ts'
import { readStateFileSync } from '../host/state-file.ts'
import type { DeploymentFacts } from '../journal/facts.ts'
import { holdLock } from '../recovery/recover-host.ts'
import { type HostContext, readHostConfig } from '../reports/host.ts'
import { completeLocalReport, type FoundReport, type LocalReport, restoredUnhealthy } from '../reports/local-report.ts'
import { checkOfRestored, findUnhealthy, isExamining, type RestoredCheck, uniqueChecks } from '../services/health.ts'
import { findServiceOf } from '../services/supervise.ts'

/** The runner passes the text in an environment variable, which Linux limits to 128 KiB. */
const MAX_HANDOVER_BYTES = 60_000
const LOCK_TIMEOUT_MS = 5000

/** The main step's request that its post step check the health of the restored version. */
const handoverSchema = z.lazy(() =>
  z.object({
    deployment_id: z.uuid(),
    slug: z.nullable(z.string()),
    started_at: timeSchema,
    /**
     * The digest of `installed.json`, or null if there is no such file. If the digest differs in the post step, another
     * run has deployed in between.
     */
    installed: z.nullable(z.string()),
    /** The ids of the parts to check. How, the host config of the post step says. */
    parts: z.array(idSchema),
    /** The number of parts that did not fit into a saved state of the runner. */
    left_out: z.int(),
  }),
)
type Handover = z.infer<typeof handoverSchema>

/**
 * Returns the names of the restored parts that a cancelled run had no time to check, as text for the post step, which
 * gets the text from the runner.
 */
export function writeHandover(layout: Layout, facts: DeploymentFacts, checks: readonly RestoredCheck[]): string {
  const { deployment_id, slug, started_at } = facts
  const parts = [...new Set(checks.map(({ id }) => id))]
  const textWith = (count: number): string => {
    const left = { parts: parts.slice(0, count), left_out: parts.length - count }
    const handover: Handover = { deployment_id, slug, started_at, installed: digestOf(layout), ...left }
    return JSON.stringify(handover)
  }
  let count = parts.length
  while (count > 0 && Buffer.byteLength(textWith(count)) > MAX_HANDOVER_BYTES) count = Math.floor(count / 2)
  return textWith(count)
}

/** A restored version that is unhealthy. */
export interface UnhealthyRestoration {
  /** The problem, for the operator. */
  readonly sentence: string
  /** The completed local report; undefined if there is none, or if it could not be written. */
  readonly found: FoundReport | undefined
}

/**
 * Checks the health of the version that a cancelled run has restored, and completes that run's local report. Returns
 * undefined if no check fails. Also returns undefined, without a check, if another run is in progress on this host, was
 * interrupted, or has deployed in the meantime. Throws as `requireSafeHost`, `requireOwnKinds`, `readStateFileSync` and
 * `holdLock` do, except for `locked`. Also throws the signal's reason after a cancel, and an error for a text that
 * `writeHandover` did not write.
 */
export async function checkRestored(host: HostContext, text: string): Promise<UnhealthyRestoration | undefined> {
  const handover = handoverSchema.parse(JSON.parse(text))
  requireSafeHost(host)
  requireOwnKinds(host.layout)
  const lock = await holdLock(host, LOCK_TIMEOUT_MS).catch(unlessLocked)
  if (lock === undefined) return undefined
  try {
    return await checkLocked(host, handover)
  } finally {
    lock.release()
  }
}

function unlessLocked(error: unknown): undefined {
  if (toDeployError(error).code !== 'locked') throw error
}

async function checkLocked(host: HostContext, handover: Handover): Promise<UnhealthyRestoration | undefined> {
  const { layout, grace } = host
  if (pathExistsSync(layout.journal) || digestOf(layout) !== handover.installed) return undefined
  const checks = await checksOf(host, handover)
  if (checks === undefined) return undefined
  // A healthy version is the normal case, so nothing is logged about it.
  const log = { ...host.log, info: () => {} }
  const health = await findUnhealthy(checks, { log, signal: grace.cancelled })
  const complete = (report: LocalReport): LocalReport => withHealth(report, health, handover)
  const found = await completeLocalReport(host, handover, complete).catch(() => undefined)
  const sentence =
    (found && restoredUnhealthy(found.report)) ??
    `The restored version is not ${health.healthy === null ? 'known to be ' : ''}healthy. ${health.problems.map(asSentence).join(' ')}`
  return health.healthy === true ? undefined : { sentence, found }
}

/**
 * Returns the checks that the host config of this step has for the restored parts. If it has none, leaves the parts'
 * services to the next run whose host config names them, and returns undefined.
 */
async function checksOf(host: HostContext, { parts }: Handover): Promise<RestoredCheck[] | undefined> {
  const { layout, log, grace } = host
  const rows = readInstalled(layout).filter(({ id }) => parts.includes(id))
  const config = readHostConfig(host)
  const checks: RestoredCheck[] = []
  for (const row of rows) {
    if (typeof config === 'string') break
    const named = await findServiceOf(config, row.id, { signal: grace.cancelled })
    checks.push(checkOfRestored(config, row, named?.service ?? null))
  }
  const examining = uniqueChecks(checks.filter(isExamining))
  if (examining.length > 0) return examining
  const why = typeof config === 'string' ? config : 'the host config has no service and no check for it'
  log.warning(`The health of ${parts.join(', ')} was not checked after the rollback, because ${why}.`)
  await recordPending(layout, row => {
    const pending = pendingIn(row)
    return rows.includes(row) && pending !== true && pending.length === 0 ? true : pending
  })
  return undefined
}

function withHealth(
  report: LocalReport,
  { healthy: found, problems }: Awaited<ReturnType<typeof findUnhealthy>>,
  { left_out: left }: Handover,
): LocalReport {
  if (report.rollback === null) return report
  const healthy = found === true && left > 0 ? null : found
  return { ...report, rollback: { ...report.rollback, healthy, problems: [...report.rollback.problems, ...problems] } }
}

function digestOf({ installed }: Layout): string | null {
  const text = readStateFileSync(installed)
  return text === undefined ? null : createHash('sha256').update(text).digest('hex')
}
