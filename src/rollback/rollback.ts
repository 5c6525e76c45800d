import { countInWords } from '../core/text.ts'
import { readInstalled } from '../install/host/record.ts'
import type { RunResult } from '../install/reports/result.ts'
import { runContract, type Subject } from '../install/run/contract.ts'
import type { DeploymentTools, TerminalState } from '../install/run/deployment.ts'
import type { Flow } from '../install/run/run.ts'
import type { InstallOrder, StepContext } from '../install/steps/context.ts'
import { recordDriftOfKept } from '../install/steps/drift.ts'
import { describeSequence, runSteps } from '../install/steps/run-steps.ts'
import { noteReplacedVersion, ROLLBACK_TRANSITIONS, type RollbackRequest, type RunningRollback } from './deployment.ts'
import { orderRollback, type ParsedFiles, parseFiles, verifySnapshots } from './plan.ts'
import { notInstalled } from './refusals.ts'
import { findTarget } from './target.ts'

/**
 * Restores a retained version on purpose. This is a deployment whose files are a snapshot on this host, so it needs no
 * hub. However the run ends, the host runs exactly the version that it ran before or exactly the restored one (or the
 * outcome is `inconsistent`). If the subject has a sender, the hub gets a report, best-effort, unless this is a dry
 * run. Never throws for a failed rollback: the result contains the error.
 */
export async function rollBackVersion<Request extends RollbackRequest>(
  subject: Subject<Request>,
  request: Request,
  tools: DeploymentTools,
): Promise<RunResult> {
  const contract = {
    ...subject,
    transitions: ROLLBACK_TRANSITIONS,
    connect: () => ({ sender: subject.sender(request, tools) }),
    flow: (rollback: RunningRollback) => new RollbackFlow(rollback),
  }
  return await runContract(contract, request, tools)
}

/** The phases of a rollback. Each phase returns the value that the next one needs. */
class RollbackFlow implements Flow<ParsedFiles> {
  readonly #rollback: RunningRollback

  constructor(rollback: RunningRollback) {
    this.#rollback = rollback
  }

  async check(): Promise<ParsedFiles> {
    const rows = await noteReplacedVersion(this.#rollback)
    const { request, layout } = this.#rollback
    if (rows.length === 0) throw notInstalled(request.subject, readInstalled(layout))
    return await parseFiles(this.#rollback)
  }

  /** All that a rollback needs is on the host. */
  async prepare(files: ParsedFiles): Promise<InstallOrder> {
    const rollback = this.#rollback
    const { log } = rollback.tools
    await rollback.enter('finding_snapshots')
    const target = await findTarget(rollback)
    log.did(`${target.version} of ${countInWords(target.parts.length, 'part')}`)
    await rollback.enter('verifying_snapshots')
    await verifySnapshots(rollback, target)
    await rollback.enter('loading_plan')
    const order = await orderRollback(rollback, target, files)
    await recordDriftOfKept(rollback, order.parts)
    log.did(countInWords(order.steps.length, 'step'))
    await rollback.enter('resolving_sequence')
    log.did(describeSequence(order.steps))
    return order
  }

  async install(context: StepContext): Promise<void> {
    const rollback = this.#rollback
    await rollback.enter('installing')
    await runSteps(context, async ({ action }) => {
      if (action === 'healthcheck' && rollback.state === 'installing') await rollback.enter('healthchecking')
    })
    if (rollback.state === 'installing') {
      await rollback.enter('healthchecking')
      rollback.tools.log.did('no step of the plan checks health')
    }
  }

  async end(state: TerminalState): Promise<void> {
    await this.#rollback.enter(state)
  }
}
