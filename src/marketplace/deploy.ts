import { countInWords } from '../core/text.ts'
import { openPrivateFileSync } from '../install/files/open.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import type { RunResult } from '../install/reports/result.ts'
import { runContract } from '../install/run/contract.ts'
import type { DeploymentTools, TerminalState } from '../install/run/deployment.ts'
import type { Flow } from '../install/run/run.ts'
import type { InstallOrder, StepContext } from '../install/steps/context.ts'
import { recordDriftOfKept } from '../install/steps/drift.ts'
import { describeSequence, runSteps } from '../install/steps/run-steps.ts'
import {
  type ArtifactDeployment,
  type DeployRequest,
  MARKETPLACE,
  MARKETPLACE_TRANSITIONS,
  noteInstalledVersion,
} from './deployment.ts'
import { type ReadyArtifactPlan, readyArtifactPlan } from './plan.ts'
import {
  type ArtifactTarget,
  acceptArtifact,
  type ExtractedVersion,
  extractArtifact,
  fetchArtifact,
  findArtifactTarget,
  orderArtifact,
  verifyArtifact,
} from './prepare.ts'

const DEPLOY = {
  ...MARKETPLACE,
  transitions: MARKETPLACE_TRANSITIONS,
  flow: (deployment: ArtifactDeployment) => new MarketplaceFlow(deployment),
}

/**
 * Deploys one plugin or service under the marketplace contract. However the run ends, the host runs exactly the old
 * version or exactly the new one, or the outcome is `inconsistent`. The local report says which, and the hub gets a
 * report, best-effort (contract 4.3). A dry run is the same flow, but ends before it installs, and reports nothing.
 * Never throws for a failed deployment: the result contains the error.
 */
export async function deployArtifact(request: DeployRequest, tools: DeploymentTools): Promise<RunResult> {
  return await runContract(DEPLOY, request, tools)
}

/** The phases of a deployment under the marketplace contract. Each phase returns the value that the next one needs. */
class MarketplaceFlow implements Flow<ReadyArtifactPlan> {
  readonly #deployment: ArtifactDeployment

  constructor(deployment: ArtifactDeployment) {
    this.#deployment = deployment
  }

  async check(): Promise<ReadyArtifactPlan> {
    const { request, record, tools } = this.#deployment
    await noteInstalledVersion(this.#deployment)
    const plan = await new TimeSlice(tools.signal).run(readyArtifactPlan(request))
    record.planSteps(plan.steps)
    await record.update({ id: plan.id })
    return plan
  }

  async prepare(plan: ReadyArtifactPlan, folder: string): Promise<InstallOrder> {
    const deployment = this.#deployment
    const { tools } = deployment
    const target = await findArtifactTarget(deployment, plan)
    const extracted = await this.#fetch(target, folder)
    await deployment.enter('loading_plan')
    const order = await orderArtifact(deployment, extracted)
    await recordDriftOfKept(deployment, order.parts)
    tools.log.did(countInWords(order.steps.length, 'step'))
    await deployment.enter('resolving_sequence')
    tools.log.did(describeSequence(order.steps))
    return order
  }

  /** Nothing needs the artifact once it is extracted. */
  async #fetch(target: ArtifactTarget, folder: string): Promise<ExtractedVersion> {
    const deployment = this.#deployment
    const file = openPrivateFileSync(deployment.tools.runner.temporaryFolder)
    try {
      await deployment.enter('fetching')
      const served = await fetchArtifact(deployment, file.fd)
      await deployment.enter('verifying_signature')
      const verified = await verifyArtifact(deployment, served)
      const accepted = acceptArtifact(deployment, { ...verified, target })
      await deployment.enter('extracting')
      return await extractArtifact(deployment, accepted, folder)
    } finally {
      file.close()
    }
  }

  async install(context: StepContext): Promise<void> {
    const deployment = this.#deployment
    await deployment.enter('installing')
    await runSteps(context, async ({ action }) => {
      if (action === 'healthcheck' && deployment.state === 'installing') await deployment.enter('healthchecking')
    })
    if (deployment.state === 'installing') {
      await deployment.enter('healthchecking')
      deployment.tools.log.did('no step of the plan checks health')
    }
  }

  async end(state: TerminalState): Promise<void> {
    await this.#deployment.enter(state)
  }
}
