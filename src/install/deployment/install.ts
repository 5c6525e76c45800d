import type { HostConfig } from '../../core/plan/host-config.ts'
import type { PlanStep } from '../../core/plan/plan-step.ts'
import type { Installation, InstalledRow } from '../host/installed.ts'
import { placeName } from '../host/layout.ts'
import { healthchecksOf, type RestoredCheck } from '../services/healthchecks.ts'
import { performStep } from '../steps/perform-step.ts'
import { removeThing } from '../steps/remove-part.ts'
import { runSteps } from '../steps/run-steps.ts'
import type { InstalledThing, NewThing, StepContext } from '../steps/step-context.ts'
import { tellUnsetSettings } from '../steps/tell-unset-settings.ts'
import { describeInstallation } from './commit-rows.ts'
import type { DeploymentRun } from './deployment.ts'
import type { OpenDeployment } from './session.ts'

/** A plan that is bound to what is there, and what it installs. */
export interface InstallOrder {
  /** In the order in which they run. */
  readonly steps: readonly PlanStep[]
  readonly things: readonly NewThing[]
  /** What is taken away before the first step. */
  readonly oldThings: readonly InstalledThing[]
  /** What `installed.json` says of all of them. */
  readonly origin: Pick<InstalledRow, 'contract' | 'slug' | 'project_version'>
  /** Whether the replaced versions are kept after success. */
  readonly snapshot: boolean
  readonly hostConfig: HostConfig | undefined
  /** Ids of the steps that `supervisor: none` in the host config leaves out. */
  readonly skipped: ReadonlySet<string>
  beforeStep(step: PlanStep): Promise<void>
}

/**
 * The state `installing` and what follows it: what the new version does not bring is taken away, then the plan's steps in
 * their order. Returns what is to be committed.
 */
export async function installThings(
  run: DeploymentRun,
  order: InstallOrder,
  deployment: OpenDeployment,
): Promise<Installation> {
  const context = describeContext(run, order, deployment)
  tellUnsetSettings({ ...context, steps: order.steps })
  await run.enter('installing')
  await deployment.transaction.noteHealthchecks(restoredChecks(order))
  await runSteps([...order.oldThings.map(removalOf), ...order.steps], run.record, run.tools.signal, async step => {
    if (step.action === 'remove') return removeThing(context, step.thing)
    await order.beforeStep(step)
    return performStep(context, step)
  })
  return describeInstallation({ run, context, origin: order.origin, snapshot: order.snapshot })
}

/** What no plan says: it is told beside the plan's steps, under the name of the place, which no step can have. */
function removalOf(thing: InstalledThing): { id: string; action: 'remove'; thing: InstalledThing } {
  return { id: placeName(thing), action: 'remove', thing }
}

function describeContext(run: DeploymentRun, order: InstallOrder, deployment: OpenDeployment): StepContext {
  const { hostConfig, skipped, things, oldThings } = order
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
    oldThings,
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
