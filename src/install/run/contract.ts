import { statSync } from 'node:fs'
import type { DeployError } from '../../core/errors.ts'
import type { Transitions } from '../../core/state-machine.ts'
import { asSentence } from '../../core/text.ts'
import { UntouchableHostError } from '../host/ownership.ts'
import { checkRoot, prepareHost } from '../host/readiness.ts'
import { buildEnd, type DeploymentEnd, type DeploymentFacts } from '../journal/facts.ts'
import { removeTrash } from '../recovery/cleanup.ts'
import { recoverBeforeRefusal } from '../recovery/recover-host.ts'
import { closeDeployment, closeUntouched } from '../reports/close.ts'
import type { HostContext } from '../reports/host.ts'
import type { RunResult } from '../reports/result.ts'
import type { ReportSender } from '../reports/sender.ts'
import { createDeploymentRecord, type HostRequest } from '../transaction/record.ts'
import { type DeploymentTools, hostContextOf, type RunningDeployment, startDeployment } from './deployment.ts'
import { dryRunDeployment } from './dry-run.ts'
import { endUnchanged, type Flow, runLocked } from './run.ts'
import { HostLock, openSession } from './session.ts'

/** A request with inputs that may be missing or malformed. */
export type Incomplete<Request> = { [K in keyof Request]: Request[K] | undefined }

/** What is known of a deployment before it starts. */
export type NamedFacts = Pick<DeploymentFacts, 'contract' | 'kind' | 'slug' | 'id' | 'requested_version'> &
  Pick<Partial<DeploymentFacts>, 'rollback_of' | 'removed'>

/** What a contract knows of a deployment from its inputs, even if they cannot be used. */
export interface Subject<Request extends HostRequest> {
  /** Each unknown fact is null. */
  named(request: Incomplete<Request>): NamedFacts
  /** Returns undefined if there is no hub to report to, or if the inputs are not enough to reach it. */
  sender(request: Incomplete<Request>, tools: DeploymentTools): ReportSender | undefined
  /**
   * True if the operator asked for a run that changes and reports nothing; undefined if an input that decides this is
   * malformed.
   */
  isRehearsal(request: Incomplete<Request>): boolean | undefined
}

/** Connections to a hub, and other tools that a flow works with. */
export interface Links {
  readonly sender: ReportSender | undefined
}

/** One of the two contracts, or a rollback that an operator requested: all that differs between their runs. */
export interface Contract<Request extends HostRequest, State extends string, Connected extends Links, Checked>
  extends Subject<Request> {
  readonly transitions: Transitions<State | 'pending'>
  connect(request: Request, tools: DeploymentTools): Connected
  flow(deployment: Started<Request, State, Connected>): Flow<Checked>
}

/** A deployment in progress, with what its contract adds. */
export type Started<Request extends HostRequest, State extends string, Connected extends Links> = Connected &
  RunningDeployment<State> & { readonly request: Request }

/**
 * Runs a deployment under a contract, or rehearses it. Takes the lock before anything is fetched, and has it until the
 * end. Recovers what a dead run left, runs the contract's flow, commits or rolls back, and reports. Removes old files
 * only before and after it has the lock. However the deployment ends, the host runs exactly the old version or exactly the new one, or the outcome says `inconsistent`.
 * Never throws for a failure of the run: the result contains the error.
 */
export async function runContract<Request extends HostRequest, State extends string, Connected extends Links, Checked>(
  contract: Contract<Request, State, Connected, Checked>,
  request: Request,
  tools: DeploymentTools,
): Promise<RunResult> {
  const deployment = startContract(contract, request, tools)
  const flow = contract.flow(deployment)
  if (contract.isRehearsal(request)) return await dryRunDeployment(deployment, flow)
  const { host } = deployment
  const lock = new HostLock(deployment)
  try {
    for (const accepted of checkRoot(host)) tools.log.warning(accepted)
    const checked = await flow.check()
    await prepareHost(host, tools.log)
    // A killed run may have left files that take the space that this run needs.
    await removeTrash(host)
    await lock.take()
    return await runLocked(await openSession(deployment), checked, { deployment, flow })
  } catch (error) {
    return await endUnchanged(error, deployment, lock)
  } finally {
    lock.release()
    await removeTrash(host)
  }
}

/** Starts a deployment that has not entered a state yet. */
export function startContract<Request extends HostRequest, State extends string, Connected extends Links>(
  contract: Omit<Contract<Request, State, Connected, unknown>, 'flow'>,
  request: Request,
  tools: DeploymentTools,
): Started<Request, State, Connected> {
  const connected = contract.connect(request, tools)
  const deployment = startDeployment<State>(request, tools, {
    transitions: contract.transitions,
    facts: factsOf(contract, request, tools),
    sender: connected.sender,
  })
  return Object.assign(deployment, connected, { request })
}

/**
 * Ends a run whose inputs cannot be used. If the project root exists and may be touched, recovers what a dead run left
 * and writes a local report there, else into the temporary folder. Reports to the hub if there is a connection (contract 4.3, rule 7). Creates no project
 * root. A rehearsal writes and sends no report. The hub gets no report either if `host-id` or an input that may ask for
 * a rehearsal is malformed.
 */
export async function refuse<Request extends HostRequest>(
  subject: Subject<Request>,
  request: Incomplete<Request>,
  { error, tools }: { readonly error: DeployError; readonly tools: DeploymentTools },
): Promise<RunResult> {
  const isRehearsal = subject.isRehearsal(request)
  const isReported = isRehearsal === false && request.hostId !== undefined
  const sender = isReported ? subject.sender(request, tools) : undefined
  const facts = factsOf(subject, request, tools)
  const at = tools.now()
  const record = createDeploymentRecord(facts, [{ state: 'pending', at: at.toISOString() }], tools.secrets.know)
  const { code, message } = error
  const end = buildEnd(at, { outcome: 'failed', error: { code, message, step: null } })
  const run = { record, end, temporaryFolder: isRehearsal ? undefined : tools.runner.temporaryFolder }
  const onKnown = (closed: RunResult): void => tools.observer.onEnded({ ...closed, error })
  const host = isRehearsal ? undefined : hostFor({ ...request, sender }, subject.named(request), tools)
  if (host === undefined || !isDirectorySync(host.layout.root))
    return { ...(await closeUntouched({ ...tools, sender }, run, onKnown)), plannedSteps: [], error }
  const known = await recoverBeforeRefusal(host, end)
  const closed =
    known instanceof UntouchableHostError
      ? await closeUntouched(host, { ...run, end: withReason(end, known) }, onKnown)
      : await closeDeployment(host, { ...run, end: known, address: sender?.address ?? null }, onKnown)
  await removeTrash(host)
  return { ...closed, error }
}

type HostInputs = Partial<
  Pick<Incomplete<HostRequest>, 'projectRoot' | 'allowSharedRoot' | 'hostConfig' | 'keepReports'>
>

/** Returns the host that a request names; undefined without a project root. */
export function hostFor(
  { projectRoot, allowSharedRoot = false, hostConfig, keepReports, sender }: HostInputs & Links,
  { slug, id }: Pick<NamedFacts, 'slug' | 'id'>,
  tools: DeploymentTools,
): HostContext | undefined {
  if (projectRoot === undefined) return undefined
  const address = { projectRoot, allowSharedRoot, hostConfig, keepReports, sender }
  return hostContextOf(tools, { ...address, ids: () => [slug, id] })
}

function factsOf<Request extends HostRequest>(
  subject: Subject<Request>,
  request: Incomplete<Request>,
  { deploymentId, now, runner }: DeploymentTools,
): DeploymentFacts {
  return {
    deployment_id: deploymentId,
    ...subject.named(request),
    version: null,
    version_source: null,
    previous_version: null,
    artifact_sha256: null,
    artifact_size: null,
    repo: null,
    host_id: request.hostId ?? '',
    started_at: now().toISOString(),
    run: runner.workflow,
  }
}

function withReason(end: DeploymentEnd, { message }: DeployError): DeploymentEnd {
  return end.error === null
    ? end
    : { ...end, error: { ...end.error, message: `${asSentence(end.error.message)} Also: ${message}` } }
}

function isDirectorySync(path: string): boolean {
  try {
    return statSync(path).isDirectory()
  } catch {
    return false
  }
}
