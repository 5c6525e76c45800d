import { join, relative } from 'node:path'
import type { HostConfig } from '../../core/plan/host-config.ts'
import { listNames } from '../../core/text.ts'
import type { PlannedChange } from '../changes/change.ts'
import type { PlannedMove } from '../changes/move.ts'
import { awaitAll, syncTrees } from '../files/durable.ts'
import { hearSignals, TimeSlice } from '../files/time-slice.ts'
import { pathExistsSync } from '../files/walk.ts'
import { installPath, type Place, placeName, placeOf, placePath, settingsPath } from '../host/layout.ts'
import { type PreviousInstall, versionInPlace } from '../host/previous-install.ts'
import { readInstalled } from '../host/record.ts'
import type { RemovedRow } from '../host/rows.ts'
import { findKeptPaths, findMovablePaths } from '../host/snapshots.ts'
import { requireSwitchable } from '../host/switchable.ts'
import { checkOfRestored } from '../services/health.ts'
import { describeService, projectServiceOf, readServiceState, type Service, serviceOf } from '../services/supervise.ts'
import type { Deployment } from '../transaction/record.ts'
import { isModified, isOnlyAdded, TreeChange } from '../trees/drift.ts'
import { readTreeRecord, stagedItems, type TreeIdentity, writeTreeRecord } from '../trees/record.ts'
import {
  type InstalledPart,
  keptIn,
  type NewPart,
  type ReturningPart,
  type StepContext,
  type StepResult,
} from './context.ts'
import {
  announceModified,
  identifyReplaced,
  keptMoves,
  type NextSnapshot,
  nextSnapshot,
  noteLeaving,
  prepareKeptPaths,
} from './snapshot.ts'

/** The parts that are removed and installed together. */
interface Switched {
  readonly removed: readonly InstalledPart[]
  readonly prepared: readonly PreparedPart[]
}

type Reach = (part: SwitchedPart) => void
type MovesOf = (one: PlannedSwitch) => readonly PlannedMove[] | Promise<readonly PlannedMove[]>

/** The groups of moves, in their order. No move depends on another move in its group. */
const GROUPS: readonly MovesOf[] = [
  ({ snapshot }) => (snapshot === undefined ? [] : [snapshot.move]),
  one => one.kept(),
  one => one.into(),
]

/**
 * Switches parts together. Stops the services of removed parts, then compares and checks the trees that are removed or
 * replaced. After that, the function only moves: all old trees to the snapshots, then the kept paths into the new
 * trees, then all new trees into their places. If a part has no old tree, its kept paths come from the snapshot that
 * was left behind. Finally compares the old trees again, because other processes could change these trees until the
 * move. Returns the result for each part, except for the removed parts that were already gone. Calls `reach` with a
 * part when the work on that part begins. Throws DeploymentError `step_failed`, `unsafe_host` or `inconsistent`, the
 * errors from stopping a service, file system errors, or the signal's reason.
 */
export async function switchParts(
  context: StepContext,
  parts: Switched,
  reach: Reach = () => undefined,
): Promise<ReadonlyMap<SwitchedPart, StepResult>> {
  const planned = await planSwitches(context, parts, reach)
  for (const movesOf of GROUPS) {
    const owners = await ownersOf(planned, movesOf, reach)
    await context.transaction.apply([...owners.keys()], move => reach(owners.get(move) as SwitchedPart))
  }
  const results = new Map<SwitchedPart, StepResult>()
  for (const { part, finish } of planned) {
    reach(part)
    results.set(part, await finish())
  }
  return results
}

/** Returns the moves of a group, each with the part that the move belongs to. */
async function ownersOf(
  planned: readonly PlannedSwitch[],
  movesOf: MovesOf,
  reach: Reach,
): Promise<ReadonlyMap<PlannedChange, SwitchedPart>> {
  const owners = new Map<PlannedChange, SwitchedPart>()
  for (const one of planned) {
    reach(one.part)
    for (const move of await movesOf(one)) owners.set(move, one.part)
  }
  return owners
}

async function planSwitches(context: StepContext, { removed, prepared }: Switched, reach: Reach) {
  const leaving: InstalledPart[] = []
  for (const part of removed) {
    reach(part)
    if (await stopRemoved(context, part)) leaving.push(part)
  }
  for (const part of [...leaving, ...prepared.map(({ part }) => part)]) {
    reach(part)
    await noteLeaving(context, part)
  }
  context.deployment.tools.signal.throwIfAborted()
  const planned: PlannedSwitch[] = []
  for (const part of leaving) {
    reach(part)
    planned.push(await planRemoval(context, part))
  }
  for (const one of prepared) {
    reach(one.part)
    planned.push(await planReplacement(context, one))
  }
  return planned
}

/** A part that is removed or installed. */
export type SwitchedPart = InstalledPart | NewPart | ReturningPart

/** The switch of one part, by moves only: all slow work is already done. */
interface PlannedSwitch {
  readonly part: SwitchedPart
  /** The snapshot that the old tree becomes, if there is an old tree. */
  readonly snapshot: NextSnapshot | undefined
  /**
   * Plans the moves of kept paths from the snapshot into the new tree. Makes room there for kept paths that appeared
   * just before the old tree was moved.
   */
  kept(): Promise<readonly PlannedMove[]>
  /** Plans the move of the new tree into its place. */
  into(): readonly PlannedMove[]
  /** Records and logs the switch once its moves are made. Returns the result of the part's step. */
  finish(): Promise<StepResult>
}

/** A part whose tree is in the staging folder, durable and recorded. */
export interface PreparedPart {
  readonly part: NewPart | ReturningPart
  readonly recorded: TreeIdentity
  /** The differences from the version that was installed at the time of the preparation. */
  readonly change: TreeChange
  /** Whether anything was in the part's place at that time. */
  readonly wasThere: boolean
}

/** The parts to prepare, and those among them that are switched immediately afterwards. */
interface Preparation {
  readonly parts: readonly (NewPart | ReturningPart)[]
  readonly next: ReadonlySet<NewPart | ReturningPart>
}

/**
 * Makes the trees of staged parts durable, with one sync if possible, and records them. Also checks the trees that are
 * replaced next against their records. Changes only the staging folder and the records. The tree of a returning part is
 * already durable and recorded. Calls `reach` with each part before the check that the part's kept paths can be carried
 * over.
 */
export async function prepareParts(
  context: StepContext,
  { parts, next }: Preparation,
  reach: (part: NewPart | ReturningPart) => void = () => undefined,
): Promise<readonly PreparedPart[]> {
  const { layout, tools } = context.deployment
  const found = parts.map(part => {
    reach(part)
    const keepPaths = keptIn(context.deployment, part)
    const path = installPath(layout, part)
    const wasThere = pathExistsSync(path)
    const keeper = wasThere ? path : part.leftBehind
    // Refuse kept paths that cannot be carried over, before anything is touched.
    if (keeper !== undefined) findKeptPaths({ root: keeper, keepPaths }, part.staged)
    return { part, wasThere, change: new TreeChange(layout, wasThere ? part.previous.installed : undefined) }
  })
  if (parts[0] !== undefined) reach(parts[0])
  const [, recorded] = await awaitAll(
    syncNew(parts, tools.signal),
    recordEach(context, found),
    // The switch does not compare these trees again, unless the sync takes a long time.
    compareEach(context, next),
  )
  return found.map((prepared, index) => ({ ...prepared, recorded: recorded[index] as TreeIdentity }))
}

type PreparedTree = Omit<PreparedPart, 'recorded'>

/** Needs only one sync, because all staged trees are on the file system of the staging folder. */
async function syncNew(parts: Preparation['parts'], signal: AbortSignal): Promise<void> {
  const [first, ...others] = parts.filter(({ recorded }) => recorded === undefined)
  if (first !== undefined) await syncTrees([first.staged, ...others.map(({ staged }) => staged)], signal)
}

/**
 * Records the trees while the sync runs in a separate process. Starts all records before it awaits any, because the
 * syncs of the records may have to wait for that sync.
 */
async function recordEach(context: StepContext, parts: readonly PreparedTree[]): Promise<TreeIdentity[]> {
  const records: Promise<TreeIdentity>[] = []
  for (const part of parts) {
    await hearSignals()
    const record = recordTree(context, part)
    // All these promises are awaited below. Until then, a rejection must not count as unhandled.
    record.catch(() => undefined)
    records.push(record)
  }
  return await awaitAll(...records)
}

async function recordTree({ deployment }: StepContext, { part, change }: PreparedTree): Promise<TreeIdentity> {
  const { layout, tools } = deployment
  if (part.recorded === undefined)
    return await writeTreeRecord(layout, change.count(stagedItems(part, keptIn(deployment, part))), tools.signal)
  const slice = new TimeSlice(tools.signal)
  for (const _ of change.count(readTreeRecord(layout, part.recorded) ?? [])) if (slice.isOver()) await slice.giveBack()
  return part.recorded
}

async function compareEach({ deployment }: StepContext, parts: Iterable<NewPart | ReturningPart>): Promise<void> {
  for (const part of parts) await deployment.drift.again(part)
}

/**
 * Plans how a prepared part takes its place. Makes the directory that will contain the part, and makes room in
 * the new tree for the kept paths. Throws DeploymentError `step_failed`, `unsafe_host` or `inconsistent`, or file
 * system errors.
 */
async function planReplacement(context: StepContext, prepared: PreparedPart): Promise<PlannedSwitch> {
  const { deployment, results } = context
  const { layout } = deployment
  const { part, wasThere, recorded } = prepared
  const old = installPath(layout, part)
  await makeDirectory(context, part.directory)
  const isThere = pathExistsSync(old)
  const leftBehind = wasThere ? undefined : part.leftBehind
  const keeper = isThere ? old : leftBehind
  const kept = keeper === undefined ? [] : await prepareKeptPaths(context, part, keeper)
  if (leftBehind !== undefined && kept.length > 0)
    deployment.tools.log.notice(
      `The host's own files in the snapshot ${leftBehind} (${listNames(kept)}) return to ${placePath(part)}.`,
    )
  const version = await leavingVersion(context, part, part.previous)
  const snapshot = isThere ? await nextSnapshot(deployment, part, version) : undefined
  const into = { type: 'move', from: relative(layout.root, part.staged), to: placePath(part) } as const
  return {
    part,
    snapshot,
    async kept() {
      const from = snapshot?.path ?? leftBehind
      if (from === undefined) return []
      // The old version may have created kept paths since the first preparation.
      const late = snapshot === undefined ? [] : await prepareKeptPaths(context, part, from)
      return keptMoves(deployment, { from, to: part.staged }, [...new Set([...kept, ...late])])
    },
    into: () => [into],
    async finish() {
      const modified = snapshot && (await identifyReplaced(context, part, snapshot.path))
      results.set(placeName(part), { tree: recorded, snapshot: snapshot?.name, version, modified })
      if (snapshot !== undefined) await announceModified(deployment, part, snapshot)
      return await describeSwitch(context, prepared, modified)
    },
  }
}

/** Returns the version of the tree that leaves a place. A tree that was changed on this host says itself which it is. */
async function leavingVersion(
  { deployment }: StepContext,
  place: Place,
  { installed, version }: Pick<PreviousInstall, 'installed' | 'version'>,
): Promise<string | null> {
  if (installed === undefined) return version
  const drift = await deployment.drift.of(place)
  return versionInPlace(deployment.layout, installed, isModified(drift) && !isOnlyAdded(drift))
}

async function describeSwitch(
  context: StepContext,
  prepared: PreparedPart,
  modified: TreeIdentity | undefined,
): Promise<StepResult> {
  const { layout, tools } = context.deployment
  const { part, recorded, change } = prepared
  const path = installPath(layout, part)
  if (modified !== undefined && part.previous.installed?.artifact_sha256 === part.artifactSha256)
    tools.log.notice(`${path} was repaired.`)
  tools.log.info(`${path} has the tree digest ${recorded.tree_digest}.`)
  await countEdited(context, prepared)
  const did = change.inWords()
  return { status: 'done', did, story: `${placePath(part)} is now ${part.version}, ${did}` }
}

/** Corrects the count of changes for files that were edited on this host, because these files were replaced, too. */
async function countEdited(
  { deployment }: StepContext,
  { part, change, recorded, wasThere }: PreparedPart,
): Promise<void> {
  const { previous } = part
  const drift = await deployment.drift.of(part)
  if (!wasThere || previous.installed === undefined || !isModified(drift)) return
  try {
    await change.correct(drift, deployment.layout, { before: previous.installed, after: recorded })
  } catch {
    // A wrong count is no reason to fail a deployment.
  }
}

/** Creates the directory and its missing parents. A rollback removes those that are empty. */
async function makeDirectory({ deployment, transaction }: StepContext, directory: string): Promise<void> {
  const parts = directory.split('/')
  for (let depth = 1; depth <= parts.length; depth++) {
    const path = parts.slice(0, depth).join('/')
    if (!pathExistsSync(join(deployment.layout.root, path))) await transaction.apply([{ type: 'make_directory', path }])
  }
}

/**
 * Stops the service of a part that the new version does not contain, if the service runs and no remaining part shares
 * it. Returns whether the part's tree exists; does nothing if the tree is gone. Throws DeploymentError `step_failed` or
 * `step_timed_out` if the service cannot be stopped or its state is unknown, and the signal's reason.
 */
async function stopRemoved(context: StepContext, part: InstalledPart): Promise<boolean> {
  const { layout, keepPathsOf } = context.deployment
  const path = installPath(layout, part)
  if (!pathExistsSync(path)) return false
  // Refuse kept paths that could not be restored, before anything is touched.
  findMovablePaths({ root: path, keepPaths: keepPathsOf(part) })
  requireSwitchable(context.deployment, part)
  await stopService(context, part)
  return true
}

/** Plans how a part's tree leaves its place. */
async function planRemoval(context: StepContext, part: InstalledPart): Promise<PlannedSwitch> {
  const { deployment, results } = context
  const { installed } = part
  const version = await leavingVersion(context, part, { installed, version: installed.version })
  const snapshot = await nextSnapshot(deployment, part, version)
  return {
    part,
    snapshot,
    kept: async () => [],
    into: () => [],
    async finish() {
      const modified = await identifyReplaced(context, part, snapshot.path)
      results.set(placeName(part), { snapshot: snapshot.name, version, modified })
      await announceModified(deployment, part, snapshot)
      const did = version === null ? 'removed' : `${version} removed`
      return { status: 'done', did, story: `${placePath(part)} ${did}` }
    },
  }
}

/** Builds the result for a part whose tree another process has removed. */
export function goneAlready(part: InstalledPart): StepResult {
  return { status: 'unchanged', did: 'was gone already', story: `${placePath(part)} was gone already` }
}

/** Announces the removed parts once they are committed: before that, a rollback would restore them. */
export function announceRemoved({ layout, tools, record }: Deployment, removed: readonly RemovedRow[]): void {
  const done = new Set(
    record.steps.flatMap(({ id, action, status }) => (action === 'remove' && status === 'done' ? [id] : [])),
  )
  for (const row of removed) {
    const place = placeOf(row)
    if (!done.has(placeName(place))) continue
    const version = row.snapshots.at(-1)?.version ?? 'of an unknown version'
    const path = installPath(layout, place)
    const why = record.facts.removed ? '' : ', because this version of the project does not contain it'
    tools.log.notice(`${path} (${version}) was removed${why}.`)
    const settings = settingsPath(layout, place)
    if (pathExistsSync(settings)) tools.log.notice(`${settings} is yours and stays: remove it when nothing needs it.`)
  }
}

async function stopService(context: StepContext, part: InstalledPart): Promise<void> {
  const { hostConfig } = context.order
  const { log, signal } = context.deployment.tools
  const service = hostConfig && serviceOf(hostConfig, part.id)
  if (hostConfig === undefined || service === undefined) {
    log.warning(`No supervisor is configured, so ${placeName(part)} was not stopped: check whether it is running.`)
    return
  }
  const { up, known, missing } = await readServiceState(service, { signal })
  if (missing || (known && !up)) return log.info(`${describeService(service)} is not running.`)
  if (isShared(context, hostConfig, service)) {
    log.notice(
      `${describeService(service)} of ${placeName(part)} was not stopped, because a remaining part uses the same service.`,
    )
    return
  }
  log.info(`stop ${describeService(service)}`)
  // The plan of the new version has no check for a removed part.
  context.transaction.noteHealthchecks([checkOfRestored(hostConfig, part.installed, service)])
  await context.transaction.supervise({ service, part: part.id }, 'stop', signal)
}

/** True if the service runs a part that stays on this host, or the whole project. */
function isShared({ deployment, order }: StepContext, config: HostConfig, service: Service): boolean {
  const leaving = new Set(order.removals.map(placeName))
  const rows = readInstalled(deployment.layout)
  const staying = rows.filter(row => !leaving.has(placeName(placeOf(row))))
  const ids = [...staying, ...order.parts].map(({ id }) => id)
  const inUse = ids.flatMap(id => [serviceOf(config, id), projectServiceOf(config, id)])
  return inUse.some(other => other !== undefined && keyOf(other) === keyOf(service))
}

/** Returns the same key for every spelling of a service: systemd adds `.service` to a name without a suffix. */
function keyOf(service: Service): string {
  const { supervisor } = service
  const isShort =
    supervisor === 'systemd' && !/\.(service|socket|target|timer|path|mount|slice|scope)$/.test(service.unit)
  return JSON.stringify(isShort ? { ...service, unit: `${service.unit}.service` } : service)
}
