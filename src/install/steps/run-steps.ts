import { monotonicMs } from '../../core/log.ts'
import type { PlanStep } from '../../core/plan/step.ts'
import { listFirst } from '../../core/text.ts'
import { healthchecksOf, type RestoredCheck } from '../services/health.ts'
import type { DeploymentRecord, PlannedStep } from '../transaction/record.ts'
import {
  divideIntoGroups,
  entryOf,
  type InstallOrder,
  notRun,
  type PlanStepRun,
  type StepContext,
  type StepEnd,
  type StepGroup,
} from './context.ts'
import { warnOfDrift } from './drift.ts'
import { announceSkipped, noticeNotRestarted, warnOfMissingEnv, warnOfUnknownSettings } from './idle.ts'
import { performStep } from './perform-step.ts'
import { goneAlready, type PreparedPart, prepareParts, type SwitchedPart, switchParts } from './switch.ts'

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
  const runs = divideIntoGroups(context)
  const ledger = new StepLedger(
    record,
    runs.flatMap(({ steps }) => steps),
  )
  let current: PlanStepRun | undefined
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
        current = step
        tools.signal.throwIfAborted()
        if (step.action !== 'remove') await beforeStep(step)
        const end = switched.get(step) ?? (step.action === 'remove' ? 'unchanged' : await performStep(context, step))
        await ledger.end(step, end)
        if (typeof end === 'object' && 'did' in end) tools.log.did(end.story ?? end.did)
      }
    }
  } catch (error) {
    await ledger.fail(error)
    if (current !== undefined && RUNS_SERVICES.has(current.action)) noticeNoProgram(context)
    announceIdle(context)
    throw error
  }
  announceIdle(context)
  warnOfMissingEnv(context)
  warnOfUnknownSettings(context)
  noticeNotRestarted(context)
}

/**
 * Prepares the staged parts of all runs. Meanwhile, checks the installed trees that the first run replaces against
 * their records.
 */
async function prepareRuns(
  context: StepContext,
  runs: readonly StepGroup[],
  ledger: StepLedger,
): Promise<readonly PreparedPart[]> {
  const steps = new Map<SwitchedPart, PlanStepRun>(runs.flatMap(({ staged }) => [...staged]))
  const parts = runs.flatMap(({ staged }) => [...staged.keys()])
  const next = new Set(runs[0]?.staged.keys())
  return await prepareParts(context, { parts, next }, part => ledger.reach(steps.get(part)))
}

/** Switches the parts of consecutive steps together. Returns the results of the steps that the switch completes. */
async function switchRun(
  context: StepContext,
  { removed, staged }: StepGroup,
  { prepared, ledger }: { prepared: readonly PreparedPart[]; ledger: StepLedger },
): Promise<ReadonlyMap<PlanStepRun, StepEnd>> {
  const steps = new Map<SwitchedPart, PlanStepRun>([...removed, ...staged])
  const parts = { removed: [...removed.keys()], prepared: prepared.filter(({ part }) => steps.has(part)) }
  const results = await switchParts(context, parts, part => ledger.reach(steps.get(part)))
  const gone = [...removed].filter(([part]) => !results.has(part))
  const ends = [...results].flatMap(([part, result]): [PlanStepRun, StepEnd][] => {
    const step = steps.get(part)
    return step === undefined ? [] : [[step, result]]
  })
  return new Map([...ends, ...gone.map(([part, step]): [PlanStepRun, StepEnd] => [step, goneAlready(part)])])
}

const RUNS_SERVICES: ReadonlySet<string> = new Set(['start', 'restart', 'healthcheck'])

/** After a service has failed: logs a notice if its new version has no executable file, unless one was logged before. */
function noticeNoProgram({ order, deployment }: StepContext): void {
  for (const part of order.parts) {
    if (part.shelf !== 'extensions' || !('tree' in part) || part.tree.scripts?.length) continue
    if (part.tree.files.some(({ mode }) => mode === 0o755)) continue
    deployment.tools.log.notice(
      `No file of extensions/${part.id} is executable. If its service starts one of them itself ("Permission denied", status 203/EXEC), have the publisher mark it (chmod +x; on Windows git update-index --chmod=+x) and pack a commit with git archive, or the folder with zip on Linux or macOS.`,
    )
  }
}

function isDone(end: StepEnd | undefined): boolean {
  return typeof end === 'object' && 'did' in end && end.status === 'done'
}

/** Logs which steps were skipped, and which files differ from what was installed, in one line each. */
function announceIdle({ deployment, idle }: StepContext): void {
  announceSkipped(deployment, idle)
  warnOfDrift(deployment)
}

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

/** Records each step of a deployment once, in order: how the step ended, or that the step was not run. */
export class StepLedger {
  readonly #record: DeploymentRecord
  readonly #left: PlanStepRun[]
  #reached: PlanStepRun | undefined
  /** Each step's share of the work that was done for several steps at once, in milliseconds. */
  readonly #shares = new Map<PlanStepRun, number>()
  readonly #now: () => number
  /** The start of the time that counts for the next step, in milliseconds. */
  #since: number

  constructor(record: DeploymentRecord, steps: readonly PlanStepRun[], now = monotonicMs) {
    this.#record = record
    this.#now = now
    this.#since = now()
    this.#left = [...steps]
    this.#reached = steps[0]
  }

  /** Sets the step that counts as failed if anything fails now. */
  reach(step: PlanStepRun | undefined): void {
    this.#reached = step ?? this.#reached
  }

  /**
   * Divides the time since the last call to `share` or `end`, or since the start, equally among these steps. Drops that
   * time if there are no steps.
   */
  share(steps: readonly PlanStepRun[]): void {
    const each = (this.#now() - this.#since) / steps.length
    for (const step of steps) this.#shares.set(step, (this.#shares.get(step) ?? 0) + each)
    this.#since = this.#now()
  }

  /** Records how the next step has ended. */
  async end(step: PlanStepRun, end: StepEnd): Promise<void> {
    this.#left.shift()
    const entry = entryOf(step, end, this.#timeOf(step))
    this.#since = this.#now()
    await this.#record.addStep(entry)
  }

  /** Records that the step set by `reach` has failed, and that the other remaining steps were not run. */
  async fail(error: unknown): Promise<void> {
    const failed = error instanceof Error ? error.message : String(error)
    for (const step of this.#left) {
      const isFailed = step === this.#reached
      await this.#record.addStep(isFailed ? entryOf(step, { failed }, this.#timeOf(step)) : notRun(step))
    }
  }

  #timeOf(step: PlanStepRun): number {
    return (this.#shares.get(step) ?? 0) + this.#now() - this.#since
  }
}

const MAX_LISTED = 20

/** Lists the steps of a plan in their order, in one line. */
export function describeSequence(steps: readonly PlannedStep[]): string {
  const named = steps.map(({ id, action }) => `${id} (${action})`)
  return listFirst(named, MAX_LISTED, ' → ')
}
