import { join } from 'node:path'
import {
  handOver,
  type Installation,
  type InstalledRow,
  isFrom,
  type RemovedRow,
  type SnapshotRow,
} from '../host/installed.ts'
import { presentPaths } from '../host/keep-paths.ts'
import { type Place, placeName, snapshotsPath } from '../host/layout.ts'
import { chooseRetained, existingSnapshots, type Retention, withKeptPaths } from '../host/snapshots.ts'
import type { InstalledThing, NewThing, StepContext } from '../steps/step-context.ts'
import type { DeploymentRun } from './deployment.ts'

/** What the steps of a plan have done, still to be committed. */
export interface Done {
  readonly run: DeploymentRun
  readonly context: StepContext
  /** What `installed.json` says of everything that was installed. */
  readonly origin: Pick<InstalledRow, 'contract' | 'slug' | 'project_version'>
  /** Whether the versions that were put aside are kept. */
  readonly snapshot: boolean
}

/** What is to be committed: what is installed from now on, what is not any more, and which snapshots stay. */
export function describeInstallation(done: Done): Installation {
  const { things, oldThings, transaction } = done.context
  const installed = things.map(thing => describeNew(done, thing, transaction.changed))
  const removed = oldThings.map(thing => describeRemoved(done, thing))
  return {
    rows: installed.map(({ row }) => row),
    removed: removed.map(({ row }) => row),
    discard: [...installed, ...removed].flatMap(({ discard }) => discard),
  }
}

interface Described<Row> {
  row: Row
  discard: string[]
}

/** `isChanged` is whether anything that the host runs was changed, by whichever thing. */
function describeNew(done: Done, thing: NewThing, isChanged: boolean): Described<InstalledRow> {
  const { installed, removed, version } = thing.previous
  const replaced = putAside(done, thing, { installed, version })
  const isRetained = done.snapshot || replaced?.artifact_sha256 === null
  const before = installed ?? removed
  const known = before === undefined ? [] : handOver(before, done.origin)
  const { keep: snapshots, discard } = retain(done, thing, known, replaced, isRetained)
  const isUnchanged = replaced === undefined && installed !== undefined && !isChanged
  return { row: isUnchanged ? { ...installed, snapshots } : { ...newVersion(done, thing), snapshots }, discard }
}

/** What was taken away always stays as a snapshot: nothing newer came in its place. */
function describeRemoved(done: Done, thing: InstalledThing): Described<RemovedRow> {
  const { id, installed } = thing
  const aside = putAside(done, thing, { installed, version: installed.version })
  const removed = aside && holdingKept(done, thing, aside)
  const { keep: snapshots, discard } = retain(done, thing, installed.snapshots, removed, true)
  const { contract, kind, slug } = installed
  return { row: { contract, kind, slug, id, snapshots }, discard }
}

/** What belongs to the host has no newer version to move on with. */
function holdingKept({ run }: Done, { shelf, id }: Place, aside: SnapshotRow): SnapshotRow {
  const path = join(snapshotsPath(run.layout, { shelf, id }), aside.name)
  const kept = presentPaths(path, run.request.keepPaths)
  if (kept.length > 0)
    run.tools.log.notice(
      `${kept.join(', ')} of ${shelf}/${id} belong to this host: they stay in ${path}, and come back with it.`,
    )
  return withKeptPaths(aside, kept)
}

/** Which snapshots of a place stay, with what was put aside in it now; what goes is removed after the commit only. */
function retain(
  { run }: Done,
  place: Place,
  recorded: readonly SnapshotRow[],
  aside: SnapshotRow | undefined,
  isRetained: boolean,
): { keep: SnapshotRow[]; discard: string[] } {
  const { shelf, id } = place
  const known = existingSnapshots(snapshotsPath(run.layout, place), recorded)
  const retention = chooseRetained(aside && isRetained ? [...known, aside] : known, run.request.keepSnapshots)
  explainRetention(run, placeName(place), retention)
  const discarded = aside && !isRetained ? [...retention.discard, aside] : retention.discard
  return { keep: retention.keep, discard: discarded.map(({ name }) => `.hub-deploy/snapshots/${shelf}/${id}/${name}`) }
}

/** Why each snapshot stays or goes. */
function explainRetention({ request, tools }: DeploymentRun, place: string, { keep, discard }: Retention): void {
  const rule = `keep-snapshots is ${request.keepSnapshots}`
  const newest = keep.at(-1)
  for (const row of keep) {
    const reason = whyIrreplaceable(row) ?? (row === newest ? 'it is the last good one' : rule)
    tools.log.info(`Snapshot ${row.name} of ${place} stays: ${reason}.`)
  }
  for (const { name } of discard) tools.log.info(`Snapshot ${name} of ${place} goes: ${rule}.`)
}

function whyIrreplaceable({ kept_paths: kept, artifact_sha256: sha256 }: SnapshotRow): string | undefined {
  if (kept !== undefined) return `it holds ${kept.join(', ')} of this host`
  return sha256 === null ? 'nobody can fetch it again' : undefined
}

/** The row of the snapshot that a place's tree was moved to, if it was. */
function putAside(
  { context, origin }: Done,
  place: Place,
  { installed, version }: { installed: InstalledRow | undefined; version: string | null },
): SnapshotRow | undefined {
  const name = context.replaced.get(placeName(place))
  if (name === undefined) return undefined
  return {
    name,
    version,
    project_version: installed?.project_version ?? null,
    artifact_sha256: installed?.artifact_sha256 ?? null,
    tree_digest: installed?.tree_digest ?? null,
    installed_at: installed?.installed_at ?? null,
    deployment_id: installed?.deployment_id ?? null,
    run_url: installed?.run_url ?? null,
    ...(installed && !isFrom(installed, origin)
      ? { origin: { contract: installed.contract, slug: installed.slug } }
      : {}),
  }
}

function newVersion({ run, origin }: Done, thing: NewThing): Omit<InstalledRow, 'snapshots'> {
  return {
    ...origin,
    kind: thing.shelf === 'plugins' ? 'plugin' : 'service',
    id: thing.id,
    version: thing.version,
    artifact_sha256: thing.artifactSha256,
    tree_digest: thing.record.digest,
    installed_at: run.tools.now().toISOString(),
    deployment_id: run.record.facts.deployment_id,
    run_url: run.tools.run.url,
  }
}
