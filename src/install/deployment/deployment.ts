import type { Log } from '../../core/log.ts'
import { createStateMachine, type Transitions } from '../../core/state-machine.ts'
import type { Wire } from '../../net/wire.ts'
import { hearSignals } from '../files/time-slice.ts'
import { type Layout, layoutOf } from '../host/layout.ts'
import type { ClosedDeployment, ClosingHost } from '../reports/close.ts'
import type { LocalReport } from '../reports/local-report.ts'
import type { ReportSender } from '../reports/outbox.ts'
import { reportTimeout } from '../reports/report-timeout.ts'
import type { DeploymentFacts, RunFacts } from '../transaction/facts.ts'
import { createDeploymentRecord, type DeploymentRecord } from '../transaction/record.ts'

/** What a deployment is asked of its host, whatever the contract. */
export interface HostRequest {
  projectRoot: string
  hostId: string
  keepSnapshots: number
  lockTimeoutMs: number
  keepPaths: readonly string[]
}

/** What varies around a deployment. */
export interface DeploymentTools {
  /** Cancelled by `signal`. */
  wire: Wire
  /** For what must be said also after a cancel: bounded by its own time-outs. */
  reportWire: Wire
  log: Log
  signal: AbortSignal
  now: () => Date
  redact: (text: string) => string
  /** Has a secret that is learned on the way masked from now on. */
  hide: (secret: string) => void
  run: RunFacts
  deploymentId: string
  /** Where the download's private file is made. */
  temporaryFolder: string
  /** The step's own environment, which write_env may take settings from. */
  variables: Readonly<Record<string, string | undefined>>
  /** Called once the host is ours, so that a run that is killed from now on has said so. */
  onLocked(report: LocalReport): void
  /** Called with how the run ended when it is cancelled before the hub has been told, because it will soon be killed. */
  onCancelledEnd(closed: ClosedDeployment): void
}

/** The states of every contract's flow from its first change of the host on. */
export type HostState = 'installing' | 'healthchecking' | 'succeeded' | 'failed' | 'rolled_back'

/** One deployment under way: what is asked, what it works with, what is known so far. */
export interface DeploymentRun<State extends string = HostState> {
  readonly request: HostRequest
  readonly tools: DeploymentTools
  readonly layout: Layout
  readonly host: ClosingHost
  readonly record: DeploymentRecord
  readonly machine: { readonly current: string }
  /** Moves to the next state: table, journal and log. Signals that have come by now are heard. */
  enter(state: State): Promise<void>
}

export interface DeploymentStart<State extends string> {
  transitions: Transitions<State>
  initial: State
  facts: DeploymentFacts
  sender: ReportSender
}

export function startDeployment<State extends string>(
  request: HostRequest,
  tools: DeploymentTools,
  { transitions, initial, facts, sender }: DeploymentStart<State>,
): DeploymentRun<State> {
  const machine = createStateMachine(transitions, initial, tools.now)
  const layout = layoutOf(request.projectRoot)
  const record = createDeploymentRecord(facts, machine.history)
  return {
    request,
    tools,
    layout,
    host: { layout, log: tools.log, redact: tools.redact, sender, reportTimeoutMs: reportTimeout(tools.signal) },
    record,
    machine,
    async enter(state) {
      // What one state computes may take its time; a cancel is heard before the next.
      await hearSignals()
      const change = machine.enter(state)
      tools.log.group(state)
      await record.enter(change)
    },
  }
}
