import { mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import { removeTree } from '../files/remove-tree.ts'
import { toHostError } from '../files/system-errors.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/tree-walk.ts'
import { installPath, isSamePlace, type Layout, placeName, placePath } from '../host/layout.ts'
import { compareTree } from '../host/trees/tree-comparison.ts'
import { itemsOf, type RecordedItem, readTreeRecord } from '../host/trees/tree-record.ts'
import { announceIdleSteps, findIdleSteps } from '../steps/idle-steps.ts'
import type { NewPart, Part, RetainedPart } from '../steps/part.ts'
import { recordDrift, warnOfDrift } from '../steps/report-drift.ts'
import type { InstallOrder } from '../steps/step-context.ts'
import type { EndedDeployment, RunningDeployment } from './deployment.ts'
import type { Flow } from './run.ts'
import { runUnreported } from './unreported.ts'

/**
 * Runs a flow until everything is prepared, then logs what it would do: the ordered steps, and how the files differ
 * from those that are installed. Writes nothing below the project root and reports nothing.
 */
export async function rehearseDeployment<Checked>(
  deployment: RunningDeployment,
  flow: Flow<Checked>,
): Promise<EndedDeployment> {
  return await runUnreported(deployment, {
    name: 'a dry run',
    fail: () => flow.end('failed'),
    async run() {
      const checked = await flow.check()
      await rehearse(deployment, folder => flow.prepare(checked, folder))
    },
  })
}

async function rehearse(
  deployment: RunningDeployment,
  prepare: (folder: string) => Promise<InstallOrder>,
): Promise<void> {
  const { tools, layout, record } = deployment
  const folder = await makeFolder(tools.runner.temporaryFolder)
  try {
    if (pathExistsSync(layout.journal)) {
      deployment.drift.disregard()
      tools.log.notice(
        'An interrupted deployment waits for its recovery, which a real run would do first. This dry run compares with the files as it left them.',
      )
    }
    const order = await prepare(folder)
    const { steps, parts, removals } = order
    await recordDrift(deployment, [...parts, ...removals])
    warnOfDrift(deployment)
    tools.log.group(`Dry run: ${changeOf(record.facts.previous_version, record.facts.version)}`)
    for (const [index, step] of steps.entries()) tools.log.info(`step ${index + 1}: ${step.id} (${step.action})`)
    announceIdleSteps(deployment, findIdleSteps(deployment, order))
    for (const part of parts) {
      announceMove(deployment, part)
      await logDifferences(deployment, part)
    }
  } finally {
    await removeTree(folder)
  }
}

function changeOf(before: string | null, after: string | null): string {
  return before === null ? `first install of ${after}` : `${before} → ${after}`
}

async function makeFolder(parent: string): Promise<string> {
  try {
    return await mkdtemp(join(parent, 'hub-deploy-dry-run-'))
  } catch (error) {
    throw toHostError(error, `making a folder in ${parent}`)
  }
}

function announceMove({ tools: { log } }: RunningDeployment, part: Part): void {
  const { installed, place } = part.previous
  if (installed === undefined || isSamePlace(place, part)) return
  log.info(`${placeName(part)}: would move from ${placePath(place)} to ${placePath(part)}.`)
}

async function logDifferences({ tools, layout, keepPaths }: RunningDeployment, part: Part): Promise<void> {
  const { log, signal } = tools
  if (part.intact !== undefined) return log.info(`${placeName(part)}: 0 added, 0 removed, 0 changed. Nothing was done.`)
  // Where it is now: a deployment may move it to another directory.
  const path = installPath(layout, part.previous.place)
  const tree = { root: path, keepPaths }
  const items = itemsIn(layout, part, keepPaths)
  const { added, removed, changed } = await compareTree(tree, items, signal)
  const newSizes = new Map(items.flatMap(({ path: file, kind, content }) => (kind === 'link' ? [] : [[file, content]])))
  const sizeOnHost = (file: string): string => sizeInWords(lstatIfPresentSync(join(path, file))?.size)
  const newSize = (file: string): string => sizeInWords(newSizes.get(file))
  // What the host lacks would be added, and what only the host has would be removed.
  for (const file of removed) log.info(`added    ${file} (${newSize(file)})`)
  for (const file of added) log.info(`removed  ${file} (${sizeOnHost(file)})`)
  for (const file of changed) log.info(`changed  ${file} (${sizeOnHost(file)} → ${newSize(file)})`)
  log.info(`${removed.length} added, ${added.length} removed, ${changed.length} changed. Nothing was done.`)
}

/** The new tree: staged, or the record of a snapshot. */
function itemsIn(layout: Layout, part: NewPart | RetainedPart, keepPaths: readonly string[]): readonly RecordedItem[] {
  return [
    ...(part.retained === undefined ? itemsOf(part.tree, keepPaths) : (readTreeRecord(layout, part.retained) ?? [])),
  ]
}

function sizeInWords(size: string | number | bigint | undefined): string {
  return size === undefined ? 'symlink' : `${size} bytes`
}
