import type { StateChange } from '../../core/state-machine.ts'
import type { DeploymentFacts, StepEntry } from './facts.ts'
import type { Journal, JournalRecord } from './journal.ts'

/** One step of a plan, as people see it. */
export type PlannedStep = Pick<StepEntry, 'id' | 'action'>

/** Everything known of a deployment while it runs. Once it has a journal, all of it is journaled. */
export interface DeploymentRecord {
  readonly facts: Readonly<DeploymentFacts>
  readonly states: readonly StateChange<string>[]
  readonly steps: readonly StepEntry[]
  /** In the order in which they run; empty until the plan is known. Not journaled. */
  readonly plannedSteps: readonly PlannedStep[]
  update(facts: Partial<DeploymentFacts>): Promise<void>
  enter(change: StateChange<string>): Promise<void>
  addStep(step: StepEntry): Promise<void>
  planSteps(steps: readonly PlannedStep[]): void
  /** Writes what is known so far as the journal's beginning. */
  startJournal(journal: Journal, extra: { reportAddress: string | null; keepPaths: readonly string[] }): Promise<void>
}

/** `onFacts` gets each fact as soon as it is known. */
export function createDeploymentRecord(
  initial: DeploymentFacts,
  states: readonly StateChange<string>[],
  onFacts: (facts: unknown) => void = () => {},
): DeploymentRecord {
  onFacts(initial)
  let facts = initial
  let journal: Journal | undefined
  const known = { states: [...states], steps: [] as StepEntry[], plannedSteps: [] as PlannedStep[] }
  return {
    get facts() {
      return facts
    },
    ...known,
    async update(more) {
      facts = { ...facts, ...more }
      onFacts(more)
      await journal?.append({ record: 'facts', facts: more })
    },
    async enter(change) {
      known.states.push(change)
      await journal?.append({ record: 'state', ...change })
    },
    async addStep(step) {
      known.steps.push(step)
      onFacts(step.id)
      await journal?.append({ record: 'step', ...step })
    },
    planSteps(steps) {
      known.plannedSteps.push(...steps.map(({ id, action }) => ({ id, action })))
    },
    async startJournal(started, { reportAddress, keepPaths }) {
      await started.append({ record: 'begin', facts, report_address: reportAddress, keep_paths: [...keepPaths] })
      for (const state of known.states) await started.append({ record: 'state', ...state })
      journal = started
    },
  }
}

/** The record of a dead run, from its journal. */
export function recordFromJournal(begun: DeploymentFacts, records: readonly JournalRecord[]): DeploymentRecord {
  const later = records.flatMap(record => (record.record === 'facts' ? [definedOnly(record.facts)] : []))
  const facts = Object.assign({ ...begun }, ...later)
  const record = createDeploymentRecord(
    facts,
    records.flatMap(entry => (entry.record === 'state' ? [{ state: entry.state, at: entry.at }] : [])),
  )
  const steps = records.flatMap(entry => (entry.record === 'step' ? [entry] : []))
  for (const { record: _, ...step } of steps) void record.addStep(step)
  return record
}

function definedOnly(
  facts: { [K in keyof DeploymentFacts]?: DeploymentFacts[K] | undefined },
): Partial<DeploymentFacts> {
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== undefined))
}
