import type { Log } from '../../core/log.ts'
import type { Settings } from '../../core/plan/settings.ts'
import type { StateChange } from '../../core/state-machine.ts'
import type { SourceFile } from '../../core/yaml/problems.ts'
import type { Layout, Place } from '../host/layout.ts'
import type { DeploymentFacts, StepEntry, WorkflowRun } from '../journal/facts.ts'
import { type Journal, type Redact, startJournal } from '../journal/journal.ts'
import type { JournalRecord } from '../journal/records.ts'
import type { DriftCheck } from '../trees/drift.ts'

/** One step of a plan, as the log and the summary show it. */
export interface PlannedStep extends Readonly<Pick<StepEntry, 'id' | 'action'>> {
  /** Nothing changes for this step. */
  readonly isIdle?: boolean
}

/** The path of a journal, and the redaction of its texts. */
interface JournalPlace {
  readonly path: string
  readonly redact: Redact
}

/** Further contents of a journal's first record. */
interface JournalExtra {
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

/** The operator's request to a host, whatever the contract. */
export interface HostRequest {
  projectRoot: string
  /** Whether to accept a project root that other users own or can write to. */
  allowSharedRoot: boolean
  hostId: string
  /** Undefined if the operator names none. */
  hostConfig: SourceFile | undefined
  keepSnapshots: number
  keepReports: number
  lockTimeoutMs: number
  keepPaths: readonly string[]
  /** Whether the run may replace parts that another plugin, service or project installed. */
  allowTakeover: boolean
  /** Whether all steps run even if nothing changes for them. */
  redeploy: boolean
  /** Whether the run only shows what it would change. */
  dryRun: boolean
  /** Values for the settings files that `write_env` creates. */
  settings: Settings
}

/** Keeps secrets out of the texts that a run writes. */
export interface SecretKeeper {
  /** Returns the text with every known secret replaced by `***`. */
  redact(text: string): string
  /** Masks a secret that the run has just learned from a hub. */
  hide(secret: string): void
  /**
   * Keeps every text in these facts readable: a hub's secret or a setting's value that is part of such a text is not
   * redacted anywhere. The secrets among the inputs are redacted even then.
   */
  know(facts: unknown): void
}

/** Redacts the texts that a run writes. */
export type Redaction = Pick<SecretKeeper, 'redact'>

/** The facts that the runner gave the deployment's process. */
export interface RunnerFacts {
  readonly workflow: WorkflowRun
  /** The folder for private files of one run. */
  readonly temporaryFolder: string
}

/** The tools that a deployment works with. */
export interface Tools {
  readonly log: Log
  /** Aborted when the run is cancelled. */
  readonly signal: AbortSignal
  readonly now: () => Date
  readonly secrets: SecretKeeper
  readonly runner: RunnerFacts
  /** A UUID. */
  readonly deploymentId: string
}

/** One deployment: its request, its tools, its host, and the facts known so far. */
export interface Deployment {
  readonly request: HostRequest
  readonly tools: Tools
  readonly layout: Layout
  readonly record: DeploymentRecord
  /**
   * Returns the paths of a part that belong to the host, relative to its install path: those that the request names and
   * those that stay without being named (see `findStickyPaths`), as they were when this run got the host.
   */
  keepPathsOf(part: Place): readonly string[]
  /** Compares the installed trees with their records. */
  readonly drift: DriftCheck
}
