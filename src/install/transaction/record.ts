import type { StateChange } from '../../core/state-machine.ts'
import type { DeploymentFacts, StepEntry } from './facts.ts'
import { type Journal, startJournal } from './journal/journal.ts'
import type { JournalRecord } from './journal/journal-record.ts'
import type { Redact } from './journal/redaction.ts'

/** One step of a plan, as the log and the summary show it. */
export interface PlannedStep extends Readonly<Pick<StepEntry, 'id' | 'action'>> {
  /** Nothing changes for this step. */
  readonly isIdle?: boolean
}

/** The path of a journal, and the redaction of its texts. */
export interface JournalPlace {
  readonly path: string
  readonly redact: Redact
}

/** Further contents of a journal's first record. */
export interface JournalExtra {
  readonly reportAddress: string | null
  readonly keepPaths: readonly string[]
}

/** Everything that is known about a deployment while it runs. */
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
  /** Marks the planned steps with these ids as steps for which nothing changes. */
  noteIdle(ids: ReadonlySet<string>): void
  /** Starts the journal with the facts and states known so far. Later facts, states and steps are journaled, too. */
  startJournal(where: JournalPlace, extra: JournalExtra): Promise<Journal>
}

/** Passes each fact to `onFacts` as soon as it is known, except the names of the host's own files. */
export function createDeploymentRecord(
  initial: DeploymentFacts,
  states: readonly StateChange<string>[],
  onFacts: (facts: unknown) => void = () => {},
): DeploymentRecord {
  const know = ({ drift: _, ...words }: Partial<DeploymentFacts>): void => onFacts(words)
  know(initial)
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
      know(more)
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
    noteIdle(ids) {
      const steps = known.plannedSteps.map(step => (ids.has(step.id) ? { ...step, isIdle: true } : step))
      known.plannedSteps.splice(0, steps.length, ...steps)
    },
    async startJournal({ path, redact }, { reportAddress, keepPaths }) {
      const begin = { facts, report_address: reportAddress, keep_paths: [...keepPaths] }
      const started = await startJournal(path, { record: 'begin', ...begin }, redact)
      for (const state of known.states) await started.append({ record: 'state', ...state })
      journal = started
      return started
    },
  }
}

/** Rebuilds the record of a dead run from its journal. */
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
