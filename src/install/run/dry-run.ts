import { promises } from 'node:fs'
import { join, relative } from 'node:path'
import { toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { isSystemError, toHostError } from '../files/errors.ts'
import { removeTree } from '../files/remove-tree.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { installPath, type Layout, placePath } from '../host/layout.ts'
import { requireSafeHost, UntouchableHostError } from '../host/ownership.ts'
import { presentPaths } from '../host/snapshots.ts'
import { buildEnd } from '../journal/facts.ts'
import { findUnended } from '../recovery/dead-run.ts'
import { buildLocalReport, notSent, readRunningVersion, redactReport } from '../reports/local-report.ts'
import { DryRunResult, type RunResult, sizeInWords, sizesInWords } from '../reports/result.ts'
import {
  type InstalledPart,
  type InstallOrder,
  keptIn,
  type NewPart,
  type Part,
  type RetainedPart,
} from '../steps/context.ts'
import { recordDrift, warnOfDrift } from '../steps/drift.ts'
import { announceIdleSteps, findIdleSteps, missingSettings } from '../steps/idle.ts'
import { warnOfSkipped } from '../steps/loading.ts'
import { announceStickyPaths } from '../steps/snapshot.ts'
import { compareTree } from '../trees/compare.ts'
import { isSameKind, itemsOf, type RecordedItem, readTreeRecord, type TreeIdentity } from '../trees/record.ts'
import type { RunningDeployment } from './deployment.ts'
import { type Flow, failedEnd } from './run.ts'

/**
 * Runs a flow, which logs the ordered steps, until everything is prepared. Then logs which steps a real run would skip
 * and which parts and files it would change. Writes nothing below the project root and reports nothing to a hub.
 */
export async function dryRunDeployment<Checked>(
  deployment: RunningDeployment,
  flow: Flow<Checked>,
): Promise<RunResult> {
  const { tools, layout } = deployment
  return await runUnreported(deployment, {
    name: 'a dry run',
    doing: `preparing files in ${tools.runner.temporaryFolder} and comparing them with those in ${layout.root}`,
    fail: () => flow.end('failed'),
    async run() {
      const checked = await flow.check()
      return await findChanges(deployment, folder => flow.prepare(checked, folder))
    },
  })
}

async function findChanges(
  deployment: RunningDeployment,
  prepare: (folder: string) => Promise<InstallOrder>,
): Promise<DryRunResult> {
  const { tools, layout } = deployment
  const folder = await makeFolder(tools.runner.temporaryFolder)
  try {
    const isAnnounced = await announceRecovery(deployment)
    const order = await prepare(folder)
    // Another run may have begun to change the host while this run was fetching.
    if (!isAnnounced) await announceRecovery(deployment)
    announceStickyPaths(deployment, order)
    const { parts, removals } = order
    await warnOfSkipped({ deployment, order })
    await recordDrift(deployment, [...parts, ...removals])
    warnOfDrift(deployment)
    tools.log.group('dry run')
    announceIdleSteps(deployment, findIdleSteps(deployment, order))
    const result = new DryRunResult()
    for (const part of removals) noteRemoval(result, layout, part)
    for (const part of parts) {
      await noteDifferences(result, deployment, part)
      noteSettings(result, deployment, { part, order })
    }
    logResult(tools.log, result)
    return result
  } finally {
    await removeTree(folder, tools.signal)
  }
}

async function makeFolder(parent: string): Promise<string> {
  try {
    return await promises.mkdtemp(join(parent, 'hub-deploy-dry-run-'))
  } catch (error) {
    throw toHostError(error, `making a folder in ${parent}`)
  }
}

function noteRemoval({ removals }: DryRunResult, layout: Layout, part: InstalledPart): void {
  if (!pathExistsSync(installPath(layout, part))) return
  removals.push(`${placePath(part)} would be removed and kept as a snapshot.`)
}

async function noteDifferences(result: DryRunResult, deployment: RunningDeployment, part: Part): Promise<void> {
  const { tools, layout } = deployment
  if (part.intact !== undefined) return
  const path = installPath(layout, part)
  const keepPaths = presentKeepPaths(deployment, part)
  const items = itemsIn(layout, part, keepPaths)
  const { added, uncounted, removed, changed } = await compareTree({ root: path, keepPaths }, items, tools.signal)
  const newSizes = new Map(items.flatMap(({ path: file, kind, content }) => (kind === 'link' ? [] : [[file, content]])))
  const before = (file: string): string => sizeInWords(fileSizeSync(join(path, file)))
  const after = (file: string): string => sizeInWords(newSizes.get(file))
  const named = (file: string): string => `${placePath(part)}/${file}`
  for (const file of changed) result.add('changed', named(file), () => ({ before: before(file), after: after(file) }))
  // A file that only the new version has would be added; one that only the host has would be removed.
  for (const file of removed) result.add('added', named(file), () => ({ after: after(file) }))
  for (const file of added) result.add('removed', named(file), () => ({ before: before(file) }))
  if (uncounted) result.hasMore = true
}

/** Undefined for a symlink. */
function fileSizeSync(path: string): number | undefined {
  const found = lstatIfPresentSync(path)
  return found?.isSymbolicLink() ? undefined : found?.size
}

/**
 * Returns the keep-paths that exist on the host. The new version gets the other keep-paths from the artifact, if the
 * artifact contains them.
 */
function presentKeepPaths(deployment: RunningDeployment, part: Part): string[] {
  const path = installPath(deployment.layout, part)
  const keeper = pathExistsSync(path) ? path : part.leftBehind
  return keeper === undefined ? [] : presentPaths(keeper, keptIn(deployment, part))
}

function noteSettings(
  result: DryRunResult,
  deployment: RunningDeployment,
  { part, order }: { readonly part: Part; readonly order: InstallOrder },
): void {
  for (const path of missingSettings(deployment, order, part))
    result.add('added', relative(deployment.layout.root, path), () => ({ after: 'from its template' }))
}

function logResult(log: Log, result: DryRunResult): void {
  for (const sentence of result.removals) log.info(sentence)
  for (const change of result.changes)
    log.info(`${change.how.padEnd('changed'.length)}  ${change.path} (${sizesInWords(change)})`)
  const more = result.count - result.changes.length
  if (more > 0) log.info(`and ${result.countInWords(more)} more`)
  log.did(`a real run would ${result.inDetail()}`)
}

/** Returns the items of the new tree, from the extracted artifact or from the record of a snapshot. */
function itemsIn(layout: Layout, part: NewPart | RetainedPart, keepPaths: readonly string[]): readonly RecordedItem[] {
  if (part.retained !== undefined) return [...(readTreeRecord(layout, part.retained) ?? [])]
  const installed = itemsByPath(layout, part.previous.installed)
  return Array.from(itemsOf(part.tree, keepPaths), ({ owner: _, ...item }) => {
    const before = installed.get(item.path)
    // In the shelf, a default ACL would apply.
    return before !== undefined && isSameKind(before, item) ? { ...item, kind: before.kind } : item
  })
}

/** Returns no items without a usable record. */
function itemsByPath(layout: Layout, installed: TreeIdentity | undefined): ReadonlyMap<string, RecordedItem> {
  try {
    return new Map(Array.from((installed && readTreeRecord(layout, installed)) ?? [], item => [item.path, item]))
  } catch {
    return new Map()
  }
}

/**
 * Logs what a real run would do first if another run left its journal or is changing the host. Resolves to whether that
 * is so. Throws as `findUnended` does.
 */
async function announceRecovery(deployment: RunningDeployment): Promise<boolean> {
  const waiting = await describeUnended(deployment)
  if (waiting === undefined) return false
  deployment.drift.disregard()
  deployment.tools.log.notice(`${waiting} This dry run compares the new files with those that are on the host now.`)
  return true
}

async function describeUnended({ host, tools }: RunningDeployment): Promise<string | undefined> {
  const other = await findUnended(host, tools.signal)
  if (other === undefined) return undefined
  if ('holder' in other)
    return `Another deployment is in progress here (${other.holder}). A real run would wait for that deployment.`
  return 'An interrupted deployment is waiting for its recovery. A real run would recover it first, and deploy nothing if the recovery fails.'
}

/** A run that only reads the host. */
interface UnreportedRun {
  /** With an article, such as `a dry run`. */
  readonly name: string
  /** Completes a message about a system error: `Failed while examining /srv/app`. */
  readonly doing: string
  /** Resolves to the changes that a real run would make; undefined for a run that only checks. */
  run(): Promise<DryRunResult | undefined>
  /** Enters the state `failed`. */
  fail(): Promise<void>
}

/**
 * Runs work that only reads the host. Writes nothing below the project root, neither a lock nor a report, and reports
 * nothing to a hub. Never throws for a failure of the run: the result contains the error.
 */
export async function runUnreported(
  deployment: RunningDeployment,
  { name, doing, run, fail }: UnreportedRun,
): Promise<RunResult> {
  try {
    for (const accepted of requireSafeHost(deployment.host)) deployment.tools.log.warning(accepted)
    deployment.noteRunning()
    const dryRun = await run()
    return { ...conclude(deployment, name), dryRun }
  } catch (error) {
    deployment.tools.log.did('failed')
    if (deployment.state !== 'pending') await fail()
    return conclude(deployment, name, { thrown: causeOf(deployment, error, doing) })
  }
}

function causeOf({ tools }: RunningDeployment, thrown: unknown, doing: string): unknown {
  if (tools.signal.aborted) return tools.signal.reason
  return isSystemError(thrown) ? toHostError(thrown, doing) : thrown
}

function conclude(deployment: RunningDeployment, name: string, failure?: { thrown: unknown }): RunResult {
  const { record, tools, layout } = deployment
  const error = failure && toDeployError(failure.thrown)
  const reported = notSent(`${name} reports nothing`)
  const end = error === undefined ? buildEnd(tools.now(), { outcome: 'success' }) : failedEnd(deployment, error)
  const isUnknown = error instanceof UntouchableHostError || end.outcome === 'inconsistent'
  const running_version = isUnknown ? null : readRunningVersion(layout, record.facts)
  const report = buildLocalReport(record, end, { reported, running_version })
  return {
    report: redactReport(report, tools.secrets),
    reportPath: undefined,
    plannedSteps: record.plannedSteps,
    error,
  }
}
