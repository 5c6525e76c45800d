import { DeploymentError } from '../core/errors.ts'
import { type HostConfig, parseHostConfigSlowly } from '../core/plan/host-config.ts'
import { countInWords } from '../core/text.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import type { RunResult } from '../install/reports/result.ts'
import { runContract } from '../install/run/contract.ts'
import type { TerminalState } from '../install/run/deployment.ts'
import type { Flow } from '../install/run/run.ts'
import type { InstallOrder, StepContext } from '../install/steps/context.ts'
import { recordDriftOfKept } from '../install/steps/drift.ts'
import { describeSequence, runSteps } from '../install/steps/run-steps.ts'
import {
  connect,
  PROJECT,
  PROJECT_TRANSITIONS,
  type ProjectDeployment,
  type ProjectRequest,
  type ProjectTools,
} from './deployment.ts'
import { orderProject } from './plan.ts'
import {
  acceptProjectVersion,
  checkInstalledParts,
  downloadSealed,
  listSealed,
  noteInstalledProject,
  openSealed,
  requestArtifact,
  verifyProject,
  verifySealed,
} from './sealed.ts'

/**
 * Deploys one project under the proposed contract: all its plugins and extensions in one transaction. However the
 * deployment ends, the host runs exactly the old version or exactly the new one (or the outcome is `inconsistent`). If
 * the hub refuses the report of a success, that is an error, although the new version stays (contract 7). Never throws
 * for a failed deployment: the result contains the error.
 */
export async function deployProject(request: ProjectRequest, tools: ProjectTools): Promise<RunResult> {
  const contract = {
    ...PROJECT,
    transitions: PROJECT_TRANSITIONS,
    connect: () => connect(request, tools),
    flow: (deployment: ProjectDeployment) => new ProjectFlow(deployment),
  }
  const ended = await runContract(contract, request, tools)
  return { ...ended, error: ended.error ?? refusedReport(ended) }
}

/** Each state trusts only data that earlier states have verified. The plaintext is not used before its tag matches. */
class ProjectFlow implements Flow<HostConfig | undefined> {
  readonly #deployment: ProjectDeployment

  constructor(deployment: ProjectDeployment) {
    this.#deployment = deployment
  }

  async check(): Promise<HostConfig | undefined> {
    const { request, tools } = this.#deployment
    await noteInstalledProject(this.#deployment)
    const source = request.hostConfig
    return source && (await new TimeSlice(tools.signal).run(parseHostConfigSlowly(source.text, source.path)))
  }

  async prepare(hostConfig: HostConfig | undefined, folder: string): Promise<InstallOrder> {
    const deployment = this.#deployment
    const { request, client, tools, record } = deployment
    await noteInstalledProject(deployment)
    checkInstalledParts(deployment)
    await deployment.enter('authenticating')
    await client.authenticate()
    tools.log.did(`project ${request.projectId} at ${new URL(request.hubUrl).host}`)
    await deployment.enter('requesting_artifact')
    const offer = await requestArtifact(deployment)
    await deployment.enter('downloading')
    const sealed = await downloadSealed(deployment, offer)
    await deployment.enter('verifying_signature')
    const verified = await verifySealed(deployment, offer, sealed)
    acceptProjectVersion(deployment, { version: offer.version, sha256: verified.sha256 })
    // The download may have taken long: the host must prove writable when the key is requested.
    checkInstalledParts(deployment)
    await deployment.enter('obtaining_key')
    const dek = await client.authorize(request.deploymentCredential, offer.descriptor.signature)
    tools.log.did('the hub allows this deployment')
    await deployment.enter('decrypting')
    const opened = await openSealed(deployment, verified, dek)
    tools.log.did('intact')
    await deployment.enter('extracting')
    const listed = await listSealed(deployment, opened, folder)
    await deployment.enter('verifying_manifest')
    const project = await verifyProject(deployment, offer.version, listed)
    tools.log.did(
      `${request.projectId} ${project.manifest.version}, ${countInWords(project.manifest.parts.length, 'part')}`,
    )
    await deployment.enter('validating_project')
    const order = await orderProject(deployment, { ...project, artifactSha256: verified.sha256 }, hostConfig)
    await recordDriftOfKept(deployment, order.parts)
    record.planSteps(order.steps)
    tools.log.did(`${countInWords(order.steps.length, 'step')} for ${countInWords(order.parts.length, 'part')}`)
    await deployment.enter('resolving_sequence')
    for (const { shelf, id } of order.removals)
      tools.log.info(`This version does not contain ${shelf}/${id}, so ${shelf}/${id} will be removed.`)
    tools.log.did(describeSequence(order.steps))
    return order
  }

  async install(context: StepContext): Promise<void> {
    const deployment = this.#deployment
    const { order } = context
    const notifications = new Set(order.steps.slice(order.steps.findLastIndex(isNoNotification) + 1))
    await deployment.enter('installing')
    await runSteps(context, async step => {
      const isNotification = notifications.has(step)
      const isCheck = step.action === 'healthcheck' || isNotification
      if (isCheck && deployment.state === 'installing') await deployment.enter('healthchecking')
      if (isNotification && deployment.state === 'healthchecking') await deployment.enter('notifying')
    })
    if (deployment.state === 'installing') {
      await deployment.enter('healthchecking')
      deployment.tools.log.did('no step of the plan checks health')
    }
    if (deployment.state === 'healthchecking') {
      await deployment.enter('notifying')
      deployment.tools.log.did('the plan does not end with a notify step')
    }
  }

  async end(state: TerminalState): Promise<void> {
    await this.#deployment.enter(state)
  }
}

function isNoNotification({ action }: { action: string }): boolean {
  return action !== 'notify'
}

/**
 * Returns the error if the hub refused the report of a successful deployment. It is no error if the report got no
 * answer or the login for it was refused: a later run sends that report again.
 */
function refusedReport({ report, delivery }: RunResult): DeploymentError | undefined {
  if (report.outcome !== 'success' || delivery === undefined || delivery.accepted || delivery.status === null) {
    return undefined
  }
  return new DeploymentError(
    'report_refused',
    `Version ${report.version} is installed and stays, but the hub refused this run's report. The next run sends the report again. ${delivery.error}`,
  )
}
