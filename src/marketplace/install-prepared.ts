import { DeploymentError } from '../core/errors.ts'
import type { PlanStep } from '../core/plan-step.ts'
import type { OpenDeployment } from '../install/host-session.ts'
import type { InstalledRow, SnapshotRow } from '../install/installed.ts'
import { installPath } from '../install/layout.ts'
import { chooseRetained, existingSnapshots, type Retention } from '../install/snapshots.ts'
import { installTree } from '../install/steps/install-tree.ts'
import { runSteps, type StepStatus } from '../install/steps/run-steps.ts'
import type { Previous } from '../install/steps/step-context.ts'
import { writeEnv } from '../install/steps/write-env.ts'
import { buildTreeRecord, compareTree, type TreeRecord, writeTreeRecord } from '../install/tree-record.ts'
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
  const record = buildTreeRecord(prepared.tree, run.request.keepPaths)
  const stage = { run, prepared, previous, deployment, record, snapshot: undefined }
  await run.enter('installing')
  await writeTreeRecord(run.layout, record)
  await runSteps(prepared.ready.steps, run.record, run.tools.signal, step => perform(stage, step))
  if (run.machine.current === 'installing') await run.enter('healthchecking')
  return describeInstallation(stage)
}

interface Stage {
  readonly run: Run
  readonly prepared: Prepared
  readonly previous: Previous
  readonly deployment: OpenDeployment
  readonly record: TreeRecord
  /** The name under which the replaced tree was put aside. */
  snapshot: string | undefined
}

async function perform(stage: Stage, step: PlanStep): Promise<StepStatus> {
  const { run, prepared } = stage
  if (prepared.ready.skipped.has(step.id)) {
    run.tools.log.notice(`Step ${step.id} (${step.action}) is skipped: the host config says supervisor: none.`)
    return 'skipped'
  }
  switch (step.action) {
    case 'prepare':
    case 'download':
    case 'extract':
    case 'rollback':
    case 'configure_plugin':
      return 'done'
    case 'install_plugin':
    case 'install_extension':
      return install(stage)
    case 'write_env':
      return writeSettings(stage, step.from)
    case 'provision':
    case 'start':
    case 'stop':
    case 'restart':
    case 'healthcheck':
    case 'notify':
      throw new DeploymentError('step_failed', `Step "${step.id}": ${step.action} is not supported by this version.`)
  }
}

async function install(stage: Stage): Promise<StepStatus> {
  const { run, prepared, previous, deployment, record } = stage
  if (await isInstalledAlready(stage)) {
    run.tools.log.info(`${prepared.version} with these bytes is installed already and intact: nothing to change.`)
    return 'unchanged'
  }
  stage.snapshot = await installTree({
    layout: run.layout,
    transaction: deployment.transaction,
    log: run.tools.log,
    shelf: run.shelf,
    id: prepared.ready.id,
    staged: prepared.staged,
    previousVersion: previous.version,
    keepPaths: run.request.keepPaths,
    signal: run.tools.signal,
  })
  run.tools.log.info(
    `${installPath(run.layout, run.shelf, prepared.ready.id)} is now ${prepared.version} (tree digest ${record.digest}).`,
  )
  return 'done'
}

async function isInstalledAlready({ run, prepared, previous, record }: Stage): Promise<boolean> {
  const { installed } = previous
  if (installed?.artifact_sha256 !== prepared.artifactSha256 || installed.tree_digest !== record.digest) return false
  const place = installPath(run.layout, run.shelf, prepared.ready.id)
  const { removed, changed } = await compareTree(place, record, run.request.keepPaths, run.tools.signal)
  return removed.length === 0 && changed.length === 0
}

async function writeSettings({ run, prepared, deployment }: Stage, from: string): Promise<StepStatus> {
  return writeEnv({
    layout: run.layout,
    transaction: deployment.transaction,
    log: run.tools.log,
    shelf: run.shelf,
    id: prepared.ready.id,
    from,
    environment: prepared.pluginYaml?.environment ?? { required: [], optional: [] },
    variables: run.tools.variables,
    stagingFolder: deployment.stagingFolder,
  })
}

async function describeInstallation(stage: Stage): Promise<Installation> {
  const { run, prepared, previous, record } = stage
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
      : { ...newVersion(stage, record), snapshots: retention.keep },
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

function newVersion({ run, prepared }: Stage, record: TreeRecord): Omit<InstalledRow, 'snapshots'> {
  return {
    contract: 'marketplace',
    kind: run.request.kind,
    slug: run.request.slug,
    id: prepared.ready.id,
    version: prepared.version,
    artifact_sha256: prepared.artifactSha256,
    tree_digest: record.digest,
    installed_at: run.tools.now().toISOString(),
    deployment_id: run.record.facts.deployment_id,
    run_url: run.tools.run.url,
  }
}
