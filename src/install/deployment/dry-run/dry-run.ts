import { promises } from 'node:fs'
import { join, relative } from 'node:path'
import type { Log } from '../../../core/log.ts'
import { toHostError } from '../../files/system-errors.ts'
import { removeTree } from '../../files/trees/remove-tree.ts'
import { lstatIfPresentSync, pathExistsSync } from '../../files/trees/tree-walk.ts'
import { presentPaths } from '../../host/keep-paths.ts'
import { installPath, isSamePlace, type Layout, placeName, placePath } from '../../host/layout.ts'
import { itemsOf } from '../../host/trees/record/extracted-items.ts'
import { readTreeRecord } from '../../host/trees/record/read-tree-record.ts'
import type { RecordedItem } from '../../host/trees/record/recorded-item.ts'
import { compareTree } from '../../host/trees/tree-comparison.ts'
import { announceIdleSteps, findIdleSteps } from '../../steps/idle-steps.ts'
import type { InstalledPart, NewPart, Part, RetainedPart } from '../../steps/parts/part.ts'
import { recordDrift, warnOfDrift } from '../../steps/parts/report-drift.ts'
import { missingSettings } from '../../steps/settings/written-settings.ts'
import type { InstallOrder } from '../../steps/step-context.ts'
import type { EndedDeployment, RunningDeployment } from '../deployment.ts'
import type { Flow } from '../run/run.ts'
import { runUnreported } from '../unreported-run.ts'
import { DryRunResult, sizeInWords, sizesInWords } from './dry-run-result.ts'
import { announceRecovery } from './pending-recovery.ts'

/**
 * Runs a flow, which logs the ordered steps, until everything is prepared. Then logs which steps a real run would skip
 * and which parts and files it would change. Writes nothing below the project root and reports nothing to a hub.
 */
export async function dryRunDeployment<Checked>(
  deployment: RunningDeployment,
  flow: Flow<Checked>,
): Promise<EndedDeployment> {
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
    const { parts, removals } = order
    await recordDrift(deployment, [...parts, ...removals])
    warnOfDrift(deployment)
    tools.log.group('dry run')
    announceIdleSteps(deployment, findIdleSteps(deployment, order))
    const result = new DryRunResult()
    for (const part of removals) noteRemoval(result, layout, part)
    for (const part of parts) {
      noteMove(result, part)
      await noteDifferences(result, deployment, part)
      noteSettings(result, deployment, { part, order })
    }
    logResult(tools.log, result)
    return result
  } finally {
    await removeTree(folder)
  }
}

async function makeFolder(parent: string): Promise<string> {
  try {
    return await promises.mkdtemp(join(parent, 'hub-deploy-dry-run-'))
  } catch (error) {
    throw toHostError(error, `making a folder in ${parent}`)
  }
}

function noteRemoval({ parts }: DryRunResult, layout: Layout, part: InstalledPart): void {
  if (!pathExistsSync(installPath(layout, part))) return
  parts.push({ how: 'remove', sentence: `${placePath(part)} would be removed and kept as a snapshot.` })
}

function noteMove({ parts }: DryRunResult, part: Part): void {
  const { installed, place } = part.previous
  if (installed === undefined || isSamePlace(place, part)) return
  const sentence = `${placeName(part)} would move from ${placePath(place)} to ${placePath(part)}.`
  parts.push({ how: 'move', sentence })
}

async function noteDifferences(result: DryRunResult, deployment: RunningDeployment, part: Part): Promise<void> {
  const { tools, layout } = deployment
  if (part.intact !== undefined) return
  // The current path: a deployment may move the part to another directory.
  const path = installPath(layout, part.previous.place)
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
function presentKeepPaths({ layout, keepPaths }: RunningDeployment, { previous, leftBehind }: Part): string[] {
  const path = installPath(layout, previous.place)
  const keeper = pathExistsSync(path) ? path : leftBehind
  return keeper === undefined ? [] : presentPaths(keeper, keepPaths)
}

/** Notes the settings files that `write_env` steps would create. */
function noteSettings(
  result: DryRunResult,
  deployment: RunningDeployment,
  { part, order }: { readonly part: Part; readonly order: InstallOrder },
): void {
  for (const path of missingSettings(deployment, order, part))
    result.add('added', relative(deployment.layout.root, path), () => ({ after: 'from its template' }))
}

function logResult(log: Log, result: DryRunResult): void {
  for (const { sentence } of result.parts) log.info(sentence)
  for (const change of result.changes)
    log.info(`${change.how.padEnd('changed'.length)}  ${change.path} (${sizesInWords(change)})`)
  const more = result.count - result.changes.length
  if (more > 0) log.info(`and ${result.countInWords(more)} more`)
  log.did(`a real run would ${result.inDetail()}`)
}

/** Returns the items of the new tree, from the extracted artifact or from the record of a snapshot. */
function itemsIn(layout: Layout, part: NewPart | RetainedPart, keepPaths: readonly string[]): readonly RecordedItem[] {
  return [
    ...(part.retained === undefined ? itemsOf(part.tree, keepPaths) : (readTreeRecord(layout, part.retained) ?? [])),
  ]
}
