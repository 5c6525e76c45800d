import { type Healthcheck, healthchecksOf } from '../install/health/healthchecks.ts'
import type { OpenDeployment } from '../install/host-session.ts'
import type { InstalledRow, SnapshotRow } from '../install/installed.ts'
import { chooseRetained, existingSnapshots, type Retention } from '../install/snapshots.ts'
import { performStep } from '../install/steps/perform-step.ts'
import { runSteps } from '../install/steps/run-steps.ts'
import { type NewThing, type Previous, placeOf, type StepContext } from '../install/steps/step-context.ts'
import { buildTreeRecord, writeTreeRecord } from '../install/tree-record.ts'
import type { Prepared } from './prepare-artifact.ts'
import type { Run } from './run.ts'

export interface Installation {
  row: InstalledRow
  /** What the cleanup removes, relative to the project root. */
  discard: string[]
}

/** The states `installing` and `healthchecking`: the plan's steps in their order. Returns what is to be committed. */
export async function installPrepared(
  run: Run,
  prepared: Prepared,
  previous: Previous,
  deployment: OpenDeployment,
): Promise<Installation> {
  const thing = describeThing(run, prepared, previous)
  const context = describeContext(run, prepared, thing, deployment)
  await run.enter('installing')
  await writeTreeRecord(run.layout, thing.record)
  await deployment.transaction.noteHealthchecks(plannedHealthchecks(prepared, context))
  await runSteps(prepared.ready.steps, run.record, run.tools.signal, async step => {
    if (step.action === 'healthcheck' && run.machine.current === 'installing') await run.enter('healthchecking')
    return performStep(context, step)
  })
  if (run.machine.current === 'installing') await run.enter('healthchecking')
  return describeInstallation({
    run,
    prepared,
    previous,
    deployment,
    thing,
    snapshot: context.replaced.get(placeOf(thing)),
  })
}

function describeThing(run: Run, prepared: Prepared, previous: Previous): NewThing {
  return {
    shelf: run.shelf,
    id: prepared.ready.id,
    version: prepared.version,
    artifactSha256: prepared.artifactSha256,
    staged: prepared.staged,
    record: buildTreeRecord(prepared.tree, run.request.keepPaths),
    environment: prepared.pluginYaml?.environment ?? { required: [], optional: [] },
    previous,
  }
}

function describeContext(run: Run, prepared: Prepared, thing: NewThing, deployment: OpenDeployment): StepContext {
  return {
    layout: run.layout,
    transaction: deployment.transaction,
    log: run.tools.log,
    signal: run.tools.signal,
    facts: run.record.facts,
    hostConfig: prepared.ready.hostConfig,
    skipped: prepared.ready.skipped,
    keepPaths: run.request.keepPaths,
    variables: run.tools.variables,
    stagingFolder: deployment.stagingFolder,
    things: [thing],
    replaced: new Map(),
  }
}

function plannedHealthchecks({ ready }: Prepared, context: StepContext): Healthcheck[] {
  const { hostConfig, things, skipped } = context
  if (hostConfig === undefined) return []
  const ids = things.map(thing => thing.id)
  return ready.steps.flatMap(step =>
    step.action === 'healthcheck' && !skipped.has(step.id) ? healthchecksOf(step, hostConfig, ids) : [],
  )
}

interface Stage {
  readonly run: Run
  readonly prepared: Prepared
  readonly previous: Previous
  readonly deployment: OpenDeployment
  readonly thing: NewThing
  /** The name under which the replaced tree was put aside. */
  readonly snapshot: string | undefined
}

async function describeInstallation(stage: Stage): Promise<Installation> {
  const { run, prepared, previous } = stage
  const { id, snapshot: asksForSnapshot } = prepared.ready
  const replaced = replacedSnapshot(stage)
  const isRetained = replaced !== undefined && (asksForSnapshot || replaced.artifact_sha256 === null)
  const known = await existingSnapshots(run.layout, run.shelf, id, previous.installed?.snapshots ?? [])
  const retention = chooseRetained(isRetained ? [...known, replaced] : known, run.request.keepSnapshots)
  const discarded = replaced === undefined || isRetained ? retention.discard : [...retention.discard, replaced]
  explainRetention(run, retention)
  const isUnchanged =
    replaced === undefined && previous.installed !== undefined && !stage.deployment.transaction.changed
  return {
    row: isUnchanged
      ? { ...(previous.installed as InstalledRow), snapshots: retention.keep }
      : { ...newVersion(stage), snapshots: retention.keep },
    discard: discarded.map(({ name }) => `.hub-deploy/snapshots/${run.shelf}/${id}/${name}`),
  }
}

/** Why each snapshot stays or goes; what goes is removed after the commit only. */
function explainRetention({ request, tools }: Run, { keep, discard }: Retention): void {
  const rule = `keep-snapshots is ${request.keepSnapshots}`
  const newest = keep.at(-1)
  for (const row of keep) {
    const reason =
      row.artifact_sha256 === null ? 'nobody can fetch it again' : row === newest ? 'it is the last good one' : rule
    tools.log.info(`Snapshot ${row.name} stays: ${reason}.`)
  }
  for (const { name } of discard) tools.log.info(`Snapshot ${name} goes: ${rule}.`)
}

function replacedSnapshot({ snapshot, previous }: Stage): SnapshotRow | undefined {
  if (snapshot === undefined) return undefined
  const { installed } = previous
  return {
    name: snapshot,
    version: previous.version,
    artifact_sha256: installed?.artifact_sha256 ?? null,
    tree_digest: installed?.tree_digest ?? null,
    installed_at: installed?.installed_at ?? null,
    deployment_id: installed?.deployment_id ?? null,
    run_url: installed?.run_url ?? null,
  }
}

function newVersion({ run, prepared, thing }: Stage): Omit<InstalledRow, 'snapshots'> {
  return {
    contract: 'marketplace',
    kind: run.request.kind,
    slug: run.request.slug,
    id: prepared.ready.id,
    version: prepared.version,
    artifact_sha256: prepared.artifactSha256,
    tree_digest: thing.record.digest,
    installed_at: run.tools.now().toISOString(),
    deployment_id: run.record.facts.deployment_id,
    run_url: run.tools.run.url,
  }
}
