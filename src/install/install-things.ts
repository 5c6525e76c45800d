import type { HostConfig } from '../core/host-config.ts'
import type { PlanStep } from '../core/plan-step.ts'
import type { DeploymentRun } from './deployment-run.ts'
import { healthchecksOf, type RestoredCheck } from './health/healthchecks.ts'
import type { OpenDeployment } from './host-session.ts'
import type { InstalledRow, SnapshotRow } from './installed.ts'
import type { Installation } from './run-deployment.ts'
import { chooseRetained, existingSnapshots, type Retention } from './snapshots.ts'
import { performStep } from './steps/perform-step.ts'
import { runSteps } from './steps/run-steps.ts'
import { type NewThing, placeOf, type StepContext } from './steps/step-context.ts'

/** A plan that is bound to what is there, and what it installs. */
export interface InstallOrder {
  /** In the order in which they run. */
  readonly steps: readonly PlanStep[]
  readonly things: readonly NewThing[]
  /** What `installed.json` says of all of them. */
  readonly origin: Pick<InstalledRow, 'contract' | 'slug' | 'project_version'>
  /** Whether the replaced versions are kept after success. */
  readonly snapshot: boolean
  readonly hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` in the host config leaves out. */
  readonly skipped: ReadonlySet<string>
  beforeStep(step: PlanStep): Promise<void>
}

/** The state `installing` and what follows it: the plan's steps in their order. Returns what is to be committed. */
export async function installThings(
  run: DeploymentRun,
  order: InstallOrder,
  deployment: OpenDeployment,
): Promise<Installation> {
  const context = describeContext(run, order, deployment)
  await run.enter('installing')
  await deployment.transaction.noteHealthchecks(restoredChecks(order))
  await runSteps(order.steps, run.record, run.tools.signal, async step => {
    await order.beforeStep(step)
    return performStep(context, step)
  })
  const isChanged = deployment.transaction.changed
  const installed = await Promise.all(
    order.things.map(thing => describeInstallation({ run, order, thing, context, isChanged })),
  )
  return { rows: installed.map(({ row }) => row), discard: installed.flatMap(({ discard }) => discard) }
}

function describeContext(run: DeploymentRun, order: InstallOrder, deployment: OpenDeployment): StepContext {
  const { hostConfig, skipped, things } = order
  return {
    layout: run.layout,
    transaction: deployment.transaction,
    log: run.tools.log,
    signal: run.tools.signal,
    facts: run.record.facts,
    hostConfig,
    skipped,
    keepPaths: run.request.keepPaths,
    variables: run.tools.variables,
    stagingFolder: deployment.stagingFolder,
    things,
    replaced: new Map(),
  }
}

/** By what the old versions are checked, should this one be taken back. */
function restoredChecks({ steps, things, hostConfig, skipped }: InstallOrder): RestoredCheck[] {
  if (hostConfig === undefined) return []
  const previous = new Map(things.map(thing => [thing.id, thing.previous.version]))
  return steps
    .flatMap(step =>
      step.action === 'healthcheck' && !skipped.has(step.id)
        ? healthchecksOf(step, hostConfig, [...previous.keys()])
        : [],
    )
    .map(check => ({ ...check, previous_version: previous.get(check.id) ?? null }))
}

interface Stage {
  readonly run: DeploymentRun
  readonly order: InstallOrder
  readonly thing: NewThing
  readonly context: StepContext
  /** Whether anything that the host runs was changed, by whichever thing. */
  readonly isChanged: boolean
}

async function describeInstallation(stage: Stage): Promise<{ row: InstalledRow; discard: string[] }> {
  const { run, order, thing } = stage
  const { shelf, id, previous } = thing
  const replaced = replacedSnapshot(stage)
  const isRetained = replaced !== undefined && (order.snapshot || replaced.artifact_sha256 === null)
  const known = await existingSnapshots(run.layout, shelf, id, previous.installed?.snapshots ?? [])
  const retention = chooseRetained(isRetained ? [...known, replaced] : known, run.request.keepSnapshots)
  const discarded = replaced === undefined || isRetained ? retention.discard : [...retention.discard, replaced]
  explainRetention(run, placeOf(thing), retention)
  const isUnchanged = replaced === undefined && previous.installed !== undefined && !stage.isChanged
  return {
    row: isUnchanged
      ? { ...(previous.installed as InstalledRow), snapshots: retention.keep }
      : { ...newVersion(stage), snapshots: retention.keep },
    discard: discarded.map(({ name }) => `.hub-deploy/snapshots/${shelf}/${id}/${name}`),
  }
}

/** Why each snapshot stays or goes; what goes is removed after the commit only. */
function explainRetention({ request, tools }: DeploymentRun, place: string, { keep, discard }: Retention): void {
  const rule = `keep-snapshots is ${request.keepSnapshots}`
  const newest = keep.at(-1)
  for (const row of keep) {
    const reason =
      row.artifact_sha256 === null ? 'nobody can fetch it again' : row === newest ? 'it is the last good one' : rule
    tools.log.info(`Snapshot ${row.name} of ${place} stays: ${reason}.`)
  }
  for (const { name } of discard) tools.log.info(`Snapshot ${name} of ${place} goes: ${rule}.`)
}

function replacedSnapshot({ thing, context }: Stage): SnapshotRow | undefined {
  const { installed, version } = thing.previous
  const name = context.replaced.get(placeOf(thing))
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
  }
}

function newVersion({ run, order, thing }: Stage): Omit<InstalledRow, 'snapshots'> {
  return {
    ...order.origin,
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
