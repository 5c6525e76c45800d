import { createStateMachine, type Transitions } from '../../core/state-machine.ts'
import type { Wire } from '../../net/wire.ts'
import { hearSignals } from '../files/time-slice.ts'
import { DriftCheck } from '../host/drift-check.ts'
import { layoutOf } from '../host/layout.ts'
import type { ClosedDeployment } from '../reports/close.ts'
import { type Flows, type Host, reportTimeout } from '../reports/host.ts'
import type { LocalReport } from '../reports/local-report.ts'
import type { ReportSender } from '../reports/outbox.ts'
import type { Deployment, HostRequest, Tools } from '../transaction/context.ts'
import type { DeploymentFacts } from '../transaction/facts.ts'
import { createDeploymentRecord } from '../transaction/record.ts'

/** The ways to a hub. */
export interface HubWires {
  /** Cancelled by the run's signal. */
  readonly wire: Wire
  /** For reports, which are also sent after a cancel: limited by its own time-outs. */
  readonly reportWire: Wire
}

/** Hears about a run before it is over. */
export interface RunObserver {
  /** The host is ours: a run that is killed from now on has reported this. */
  onLocked(interrupted: LocalReport): void
  /** A cancelled run has ended and the hub has no report yet; the runner will soon kill the process. */
  onCancelledEnd(closed: ClosedDeployment): void
}

/** What a deployment works with. */
export interface DeploymentTools extends Tools {
  readonly wires: HubWires
  readonly observer: RunObserver
  readonly flows: Flows
}

/** The last state of a flow. */
export type TerminalState = 'succeeded' | 'failed' | 'rolled_back'

/** One deployment by a contract with these states. */
export interface RunningDeployment<State extends string = TerminalState> extends Deployment {
  readonly tools: DeploymentTools
  readonly host: Host
  readonly state: string
  /** Moves to the next state: table, journal and log. Hears the signals that have arrived by now. */
  enter(state: State): Promise<void>
}

export interface DeploymentStart<State extends string> {
  transitions: Transitions<State | 'pending'>
  facts: DeploymentFacts
  sender: ReportSender
}

export function startDeployment<State extends string>(
  request: HostRequest,
  tools: DeploymentTools,
  { transitions, facts, sender }: DeploymentStart<State>,
): RunningDeployment<State> {
  const machine = createStateMachine<State | 'pending'>(transitions, 'pending', tools.now)
  const host = hostOf(tools, { ...request, sender }, tools.signal)
  tools.secrets.know([request.projectRoot, request.hostId, sender.address, Object.keys(transitions)])
  const record = createDeploymentRecord(facts, machine.history, tools.secrets.know)
  return {
    request,
    tools,
    layout: host.layout,
    record,
    host,
    drift: new DriftCheck({ layout: host.layout, log: tools.log, keepPaths: request.keepPaths, signal: tools.signal }),
    get state() {
      return machine.current
    },
    async enter(state) {
      // One state may compute for long; hear a cancel before the next.
      await hearSignals()
      const change = machine.enter(state)
      tools.log.group(state)
      await record.enter(change)
    },
  }
}

/** Which host, as the operator names it, and the way to its hub, if there is one. */
export interface HostAddress extends Pick<HostRequest, 'projectRoot' | 'allowSharedRoot'> {
  readonly sender: ReportSender | undefined
}

/** The host below a project root. Reports take less time once `signal` is aborted. */
export function hostOf(
  {
    log,
    secrets,
    runner,
    flows,
    deploymentId,
  }: Pick<DeploymentTools, 'log' | 'secrets' | 'runner' | 'flows' | 'deploymentId'>,
  { projectRoot, allowSharedRoot, sender }: HostAddress,
  signal?: AbortSignal,
): Host {
  return {
    layout: layoutOf(projectRoot),
    allowSharedRoot,
    log,
    redact: secrets.redact,
    know: secrets.know,
    sender,
    reportTimeoutMs: reportTimeout(signal),
    runUrl: runner.workflow.url,
    flows,
    runId: deploymentId,
  }
}
