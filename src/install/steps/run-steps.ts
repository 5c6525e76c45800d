import type { PlanStep } from '../../core/plan/plan-step.ts'
import { healthchecksOf, type RestoredCheck } from '../services/healthchecks.ts'
import { announceSkipped } from './idle-steps.ts'
import { warnOfDrift } from './parts/report-drift.ts'
import { performStep } from './perform-step.ts'
import { warnOfMissingEnv } from './settings/settings-notices.ts'
import type { InstallOrder, StepContext } from './step-context.ts'
import type { StepEnd } from './step-entry.ts'
import { StepLedger } from './step-ledger.ts'
import { divideIntoRuns, type Step, type StepRun } from './step-runs.ts'
import type { SwitchedPart } from './switch/planned-switch.ts'
import { type PreparedPart, prepareParts } from './switch/prepare-parts.ts'
import { goneAlready } from './switch/remove-part.ts'
import { switchParts } from './switch/switch-parts.ts'

/**
 * Prepares all staged parts, removes the parts that the new version does not contain, and then runs the plan's steps in
 * order. Records each step with its duration. Calls `beforeStep` before each step of the plan. All parts that a run of
 * steps removes or installs are switched together, before the first step of that run is recorded. If a step or its
 * preparation throws, records that step as failed and the remaining steps as not run, and throws the same error.
 */
export async function runSteps(context: StepContext, beforeStep: (step: PlanStep) => Promise<void>): Promise<void> {
  const { order, deployment, transaction, idle } = context
  const { record, tools } = deployment
  record.noteIdle(idle)
  transaction.noteHealthchecks(restoredChecks(order))
  const runs = divideIntoRuns(context)
  const ledger = new StepLedger(
    record,
    runs.flatMap(({ steps }) => steps),
  )
  try {
    tools.signal.throwIfAborted()
    const prepared = await prepareRuns(context, runs, ledger)
    ledger.share(runs.flatMap(({ staged }) => [...staged.values()]))
    for (const run of runs) {
      ledger.reach(run.steps[0])
      tools.signal.throwIfAborted()
      const switched = await switchRun(context, run, { prepared, ledger })
      ledger.share(run.steps.filter(step => isDone(switched.get(step))))
      for (const step of run.steps) {
        ledger.reach(step)
        tools.signal.throwIfAborted()
        if (step.action !== 'remove') await beforeStep(step)
        const end = switched.get(step) ?? (step.action === 'remove' ? 'unchanged' : await performStep(context, step))
        await ledger.end(step, end)
        if (typeof end === 'object' && 'did' in end) tools.log.did(end.story ?? end.did)
      }
    }
  } catch (error) {
    await ledger.fail(error)
    announce(context)
    throw error
  }
  announce(context)
  warnOfMissingEnv(context)
}

/**
 * Prepares the staged parts of all runs. Meanwhile, checks the installed trees that the first run replaces against
 * their records.
 */
async function prepareRuns(
  context: StepContext,
  runs: readonly StepRun[],
  ledger: StepLedger,
): Promise<readonly PreparedPart[]> {
  const steps = new Map<SwitchedPart, Step>(runs.flatMap(({ staged }) => [...staged]))
  const parts = runs.flatMap(({ staged }) => [...staged.keys()])
  const next = new Set(runs[0]?.staged.keys())
  return await prepareParts(context, { parts, next }, part => ledger.reach(steps.get(part)))
}

/** Switches the parts of consecutive steps together. Returns the results of the steps that the switch completes. */
async function switchRun(
  context: StepContext,
  { removed, staged }: StepRun,
  { prepared, ledger }: { prepared: readonly PreparedPart[]; ledger: StepLedger },
): Promise<ReadonlyMap<Step, StepEnd>> {
  const steps = new Map<SwitchedPart, Step>([...removed, ...staged])
  const parts = { removed: [...removed.keys()], prepared: prepared.filter(({ part }) => steps.has(part)) }
  const results = await switchParts(context, parts, part => ledger.reach(steps.get(part)))
  const gone = [...removed].filter(([part]) => !results.has(part))
  const ends = [...results].flatMap(([part, result]): [Step, StepEnd][] => {
    const step = steps.get(part)
    return step === undefined ? [] : [[step, result]]
  })
  return new Map([...ends, ...gone.map(([part, step]): [Step, StepEnd] => [step, goneAlready(part)])])
}

function isDone(end: StepEnd | undefined): boolean {
  return typeof end === 'object' && 'did' in end && end.status === 'done'
}

/** Logs which steps were skipped, and which files differ from what was installed, in one line each. */
function announce({ deployment, idle }: StepContext): void {
  announceSkipped(deployment, idle)
  warnOfDrift(deployment)
}

/** Returns the checks of the old versions, for use after a rollback. */
function restoredChecks({ steps, parts, hostConfig, skipped }: InstallOrder): RestoredCheck[] {
  if (hostConfig === undefined) return []
  const previous = new Map(parts.map(part => [part.id, part.previous.version]))
  return steps
    .flatMap(step =>
      step.action === 'healthcheck' && !skipped.has(step.id)
        ? healthchecksOf(step, hostConfig, [...previous.keys()])
        : [],
    )
    .map(check => ({ ...check, previous_version: previous.get(check.id) ?? null }))
}
