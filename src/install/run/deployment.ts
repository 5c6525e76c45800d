import { statfsSync } from 'node:fs'
import { byteShortage } from '../../core/bytes.ts'
import { DeploymentError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { createStateMachine, type StateMachine, type Transitions } from '../../core/state-machine.ts'
import { bytesInWords } from '../../core/text.ts'
import type { Wire } from '../../net/wire.ts'
import type { Grace } from '../files/child-process.ts'
import { hearSignals } from '../files/time-slice.ts'
import { layoutOf, type Place, placeName } from '../host/layout.ts'
import { findStickyPaths } from '../host/previous-install.ts'
import type { Origin } from '../host/rows.ts'
import { buildEnd, type DeploymentFacts, flowOf } from '../journal/facts.ts'
import type { Flows, HostContext } from '../reports/host.ts'
import { buildLocalReport, type LocalReport, notSent, readRunningVersion } from '../reports/local-report.ts'
import type { RunResult } from '../reports/result.ts'
import type { ReportSender } from '../reports/sender.ts'
import {
  createDeploymentRecord,
  type Deployment,
  type DeploymentRecord,
  type HostRequest,
  type Tools,
} from '../transaction/record.ts'
import { DriftCheck } from '../trees/drift.ts'

/** The connections to a hub. */
export interface HubWires {
  /** Cancelled by the run's signal. */
  readonly wire: Wire
  /** For reports, which are sent even after a cancel: the run's signal does not end these requests. */
  readonly reportWire: Wire
}

/**
 * Observes a run while it is in progress. If the run is killed before `onEnded`, the latest `interrupted` argument is
 * the run's report.
 */
export interface RunObserver {
  /** The run has the host. If it is killed after this call, a later run may have to recover and report it. */
  onBegun(interrupted: LocalReport): void
  /** The run has entered its next state. */
  onProgress(interrupted: LocalReport): void
  /** The outcome is known, and recorded on the host if possible. The report to the hub, if any, follows. */
  onEnded(result: RunResult): void
  /** An earlier, interrupted deployment has been recovered, as the sentence says. */
  onRecovered?(sentence: string): void
}

/** The tools that a deployment works with. */
export interface DeploymentTools extends Tools {
  readonly wires: HubWires
  /** The limits for the work after a cancel. */
  readonly grace: Grace
  readonly observer: RunObserver
  readonly flows: Flows
}

/** The last state of a flow. */
export type TerminalState = 'succeeded' | 'failed' | 'rolled_back'

/** A deployment in progress, under a contract with these states. */
export interface RunningDeployment<State extends string = never> extends Deployment {
  readonly tools: DeploymentTools
  readonly host: HostContext
  readonly state: string
  /** Enters the next state in the state table, the journal, the log and the outputs. Handles pending signals first. */
  enter(state: State): Promise<void>
  /**
   * Rereads the version that this host runs and the paths that it keeps. Returns the report to use if the run is killed
   * after this call.
   */
  noteRunning(): LocalReport
}

export interface DeploymentStart<State extends string> {
  transitions: Transitions<State | 'pending'>
  facts: DeploymentFacts
  /** Undefined if there is no hub to report to. */
  sender: ReportSender | undefined
}

export function startDeployment<State extends string>(
  request: HostRequest,
  tools: DeploymentTools,
  { transitions, facts, sender }: DeploymentStart<State>,
): RunningDeployment<State> {
  const machine = createStateMachine<State | 'pending'>(transitions, 'pending', tools.now)
  const host = hostContextOf(tools, { ...request, sender, ids: () => idsIn(facts, record.facts) })
  tools.secrets.know([request.projectRoot, request.hostId, sender?.address, Object.keys(transitions)])
  const record = createDeploymentRecord(facts, machine.history, tools.secrets.know)
  let running: string | null = null
  const kept = new Map<string, readonly string[]>()
  const keepPathsOf = (part: Place): readonly string[] => {
    const known = kept.get(placeName(part)) ?? [
      ...request.keepPaths,
      ...findStickyPaths(host.layout, part, { named: request.keepPaths, origin: originIn(record.facts) }),
    ]
    kept.set(placeName(part), known)
    return known
  }
  const interrupted = (): LocalReport => reportKilled({ record, machine, found: running }, tools.now())
  return {
    request,
    tools,
    layout: host.layout,
    record,
    host,
    drift: new DriftCheck({ layout: host.layout, log: tools.log, keepPathsOf, signal: tools.signal }),
    keepPathsOf,
    get state() {
      return machine.current
    },
    async enter(state) {
      // A state may compute for a long time without hearing signals, so a cancel is heard here, before the next state.
      await hearSignals()
      const change = machine.enter(state)
      logState(tools.log, state, transitions[state])
      await record.enter(change)
      tools.observer.onProgress(interrupted())
    },
    noteRunning() {
      running = readRunningVersion(host.layout, record.facts)
      kept.clear()
      return interrupted()
    },
  }
}

/**
 * A final state does no work, and the run's last sentence says how the run ended. A state that can be rolled back
 * changes the host, so its group is logged at once.
 */
function logState(log: Log, state: string, next: readonly string[]): void {
  if (next.length === 0) log.end()
  else log.group(state, next.includes('rolled_back') ? 'at once' : undefined)
}

/** Undefined for a rollback that names no slug. */
function originIn({ contract, slug }: DeploymentFacts): Origin | undefined {
  return slug === null ? undefined : { contract, slug }
}

/** How far a run has progressed. */
interface Progress {
  readonly record: DeploymentRecord
  readonly machine: Pick<StateMachine<string>, 'current' | 'history'>
  /** The version that the host was running when this run examined it. */
  readonly found: string | null
}

/** Builds the report to use if the run is killed now. */
function reportKilled({ record, machine, found }: Progress, at: Date): LocalReport {
  const running_version = runningIn(machine, { before: found, after: record.facts.version })
  const end = buildEnd(at, { outcome: 'interrupted' })
  return buildLocalReport(record, end, { reported: notSent(null), running_version })
}

/**
 * Returns the running version to report if the run is killed now. Returns null if a kill now may leave the host with
 * neither version intact until the host is recovered.
 */
function runningIn(
  { current, history }: Pick<StateMachine<string>, 'current' | 'history'>,
  version: { readonly before: string | null; readonly after: string | null },
): string | null {
  if (current === 'succeeded') return version.after
  const isSwitching = current !== 'rolled_back' && history.some(({ state }) => state === 'installing')
  return isSwitching ? null : version.before
}

/**
 * The project root of a host, with the operator's options for the host, and the connection to a hub, if there is one.
 */
interface HostAddress extends Pick<HostRequest, 'projectRoot' | 'allowSharedRoot' | 'hostConfig'> {
  readonly sender: ReportSender | undefined
  readonly keepReports?: number | undefined
  readonly ids?: HostContext['ids']
}

type HostTools = Omit<DeploymentTools, 'wires' | 'observer' | 'signal' | 'now'> & { observer?: RunObserver }

/** Builds the host of a project root, with the tools of this run. */
export function hostContextOf(
  { log, secrets, runner, flows, deploymentId, grace, observer }: HostTools,
  { projectRoot, allowSharedRoot, hostConfig, sender, keepReports, ids }: HostAddress,
): HostContext {
  return {
    layout: layoutOf(projectRoot),
    sharedRoot: { isAllowed: allowSharedRoot },
    log,
    secrets,
    sender,
    grace,
    keepReports,
    hostConfig,
    run: { id: deploymentId, url: runner.workflow.url },
    ids,
    flows,
    recovery: { onRecovered: observer?.onRecovered },
  }
}

/**
 * Returns the ids that the inputs name, and the id in the plan of a marketplace deployment. Any other id that becomes
 * known later may come from the host's record.
 */
function idsIn(given: DeploymentFacts, later: DeploymentFacts): readonly (string | null)[] {
  return [given.slug, given.id, flowOf(later) === 'marketplace' ? later.id : null]
}

/** The states of a flow that runs an operator's plan, from loading the plan to the end. */
export type PlanState = 'loading_plan' | 'resolving_sequence' | 'installing' | 'healthchecking' | TerminalState

/** Only a run that has begun to install can be rolled back. */
export const PLAN_TRANSITIONS: Transitions<PlanState> = {
  loading_plan: ['resolving_sequence', 'failed'],
  resolving_sequence: ['installing', 'failed'],
  installing: ['healthchecking', 'failed', 'rolled_back'],
  healthchecking: ['succeeded', 'failed', 'rolled_back'],
  succeeded: [],
  failed: [],
  rolled_back: [],
}

const PROGRESS_EVERY_MS = 2000

/**
 * Returns a function that logs the progress of a download, at most once every 2 s. The first call to that function
 * throws DeploymentError `disk_full` if the total is known and the temporary folder has no room for that many bytes.
 */
export function watchDownload({
  log,
  now,
  runner,
}: Pick<Tools, 'log' | 'now' | 'runner'>): (received: number, total: number | undefined) => void {
  let loggedAt = now().getTime()
  let isChecked = false
  return (received, total) => {
    if (!isChecked && total !== undefined) refuseWithoutSpace(runner.temporaryFolder, total)
    isChecked = true
    if (now().getTime() - loggedAt < PROGRESS_EVERY_MS) return
    loggedAt = now().getTime()
    log.info(`${bytesInWords(received)} of ${total === undefined ? 'an unknown total' : bytesInWords(total)}`)
  }
}

function refuseWithoutSpace(folder: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(folder)
  const free = bavail * bsize
  if (free >= bytes) return
  const shortage = byteShortage(free, bytes)
  throw new DeploymentError(
    'disk_full',
    `The artifact needs ${shortage.needed}, but the runner's temporary folder ${folder} has ${shortage.free} free. Nothing was changed: free some space there and run again.`,
  )
}
