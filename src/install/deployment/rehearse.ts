import { mkdtemp } from 'node:fs/promises'
import { join, relative } from 'node:path'
import type { Log } from '../../core/log.ts'
import { removeTree } from '../files/remove-tree.ts'
import { toHostError } from '../files/system-errors.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/tree-walk.ts'
import { installPath, isSamePlace, type Layout, placeName, placePath, settingsPath } from '../host/layout.ts'
import { formerPlace } from '../host/previous-install.ts'
import { itemsOf } from '../host/trees/record/extracted-items.ts'
import { readTreeRecord } from '../host/trees/record/read-tree-record.ts'
import type { RecordedItem } from '../host/trees/record/recorded-item.ts'
import { compareTree } from '../host/trees/tree-comparison.ts'
import { announceIdleSteps, findIdleSteps, placeOfSettings } from '../steps/idle-steps.ts'
import type { NewPart, Part, RetainedPart } from '../steps/part.ts'
import { recordDrift, warnOfDrift } from '../steps/report-drift.ts'
import type { InstallOrder } from '../steps/step-context.ts'
import type { EndedDeployment, RunningDeployment } from './deployment.ts'
import { Rehearsal, sizeInWords, sizesInWords } from './rehearsal.ts'
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
      return await rehearse(deployment, folder => flow.prepare(checked, folder))
    },
  })
}

async function rehearse(
  deployment: RunningDeployment,
  prepare: (folder: string) => Promise<InstallOrder>,
): Promise<Rehearsal> {
  const { tools, layout } = deployment
  const folder = await makeFolder(tools.runner.temporaryFolder)
  try {
    if (pathExistsSync(layout.journal)) {
      deployment.drift.disregard()
      tools.log.notice(
        'An interrupted deployment waits for its recovery, which a real run would do first. This dry run compares with the files as it left them.',
      )
    }
    const order = await prepare(folder)
    const { parts, removals } = order
    await recordDrift(deployment, [...parts, ...removals])
    warnOfDrift(deployment)
    tools.log.group('rehearsing')
    announceIdleSteps(deployment, findIdleSteps(deployment, order))
    const rehearsal = new Rehearsal()
    for (const part of parts) {
      noteMove(rehearsal, part)
      await noteDifferences(rehearsal, deployment, part)
    }
    noteSettings(rehearsal, deployment, order)
    logRehearsal(tools.log, rehearsal)
    return rehearsal
  } finally {
    await removeTree(folder)
  }
}

async function makeFolder(parent: string): Promise<string> {
  try {
    return await mkdtemp(join(parent, 'hub-deploy-dry-run-'))
  } catch (error) {
    throw toHostError(error, `making a folder in ${parent}`)
  }
}

function noteMove({ moves }: Rehearsal, part: Part): void {
  const { installed, place } = part.previous
  if (installed === undefined || isSamePlace(place, part)) return
  moves.push(`${placeName(part)} would move from ${placePath(place)} to ${placePath(part)}.`)
}

/** The settings files that `write_env` steps would create, where the host has none that a move brings along. */
function noteSettings(
  rehearsal: Rehearsal,
  { layout }: RunningDeployment,
  { steps, parts, origin }: InstallOrder,
): void {
  for (const part of parts) {
    const isWritten = steps.some(step => step.action === 'write_env' && placeOfSettings(step) === placeName(part))
    const places = [part, formerPlace(part.previous, origin)]
    if (isWritten && !places.some(place => pathExistsSync(settingsPath(layout, place))))
      rehearsal.add('added', relative(layout.root, settingsPath(layout, part)), () => ({ after: 'from its template' }))
  }
}

async function noteDifferences(rehearsal: Rehearsal, deployment: RunningDeployment, part: Part): Promise<void> {
  const { tools, layout, keepPaths } = deployment
  if (part.intact !== undefined) return
  // Where it is now: a deployment may move it to another directory.
  const path = installPath(layout, part.previous.place)
  const tree = { root: path, keepPaths }
  const items = itemsIn(layout, part, keepPaths)
  const { added, removed, changed } = await compareTree(tree, items, tools.signal)
  const newSizes = new Map(items.flatMap(({ path: file, kind, content }) => (kind === 'link' ? [] : [[file, content]])))
  const before = (file: string): string => sizeInWords(lstatIfPresentSync(join(path, file))?.size)
  const after = (file: string): string => sizeInWords(newSizes.get(file))
  const named = (file: string): string => `${placePath(part)}/${file}`
  for (const file of changed)
    rehearsal.add('changed', named(file), () => ({ before: before(file), after: after(file) }))
  // What the host lacks would be added, and what only the host has would be removed.
  for (const file of removed) rehearsal.add('added', named(file), () => ({ after: after(file) }))
  for (const file of added) rehearsal.add('removed', named(file), () => ({ before: before(file) }))
}

function logRehearsal(log: Log, rehearsal: Rehearsal): void {
  for (const sentence of rehearsal.moves) log.info(sentence)
  for (const change of rehearsal.changes)
    log.info(`${change.how.padEnd('changed'.length)}  ${change.path} (${sizesInWords(change)})`)
  const more = rehearsal.count - rehearsal.changes.length
  if (more > 0) log.info(`and ${more} more`)
  log.did(`a real run would change ${rehearsal.inWords()}`)
}

/** The new tree: staged, or the record of a snapshot. */
function itemsIn(layout: Layout, part: NewPart | RetainedPart, keepPaths: readonly string[]): readonly RecordedItem[] {
  return [
    ...(part.retained === undefined ? itemsOf(part.tree, keepPaths) : (readTreeRecord(layout, part.retained) ?? [])),
  ]
}
