import { DeploymentError } from '../core/errors.ts'
import { type HostConfig, parseHostConfig } from '../core/plan/host-config.ts'
import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { type EndedDeployment, runDeployment } from '../install/deployment/run.ts'
import type { ReadyProject } from './bind-project.ts'
import { installProject } from './install-project.ts'
import { prepareProject } from './prepare.ts'
import { noteInstalledVersion } from './previous.ts'
import type { ProjectRequest, ProjectResult } from './request.ts'
import { startRun } from './run.ts'

/**
 * Deploys one project by the proposed contract: all its plugins and extensions as one transaction. However it ends, the
 * host runs exactly the old version or exactly the new one (or the outcome says `inconsistent`). A report that the hub
 * refused is an error, though the new version stays (contract 7). Never throws for what happens on the way: it is in the result.
 */
export async function deployProject(request: ProjectRequest, tools: DeploymentTools): Promise<ProjectResult> {
  const run = startRun(request, tools)
  let hostConfig: HostConfig | undefined
  let prepared: ReadyProject | undefined
  const ended = await runDeployment(run, {
    async prepare() {
      await noteInstalledVersion(run)
      hostConfig = request.hostConfig && parseHostConfig(request.hostConfig.text, request.hostConfig.path)
    },
    async install(deployment) {
      // Another run may have installed one, or been recovered, before the host was ours.
      await noteInstalledVersion(run)
      prepared = await prepareProject(run, hostConfig, deployment.stagingFolder)
      return installProject(run, prepared, deployment)
    },
  })
  const plannedSteps = prepared?.bound.steps.map(({ id, action }) => ({ id, action })) ?? []
  return { ...ended, error: ended.error ?? refusedReport(ended), plannedSteps }
}

/** The hub answered that it does not take the report; one that could not be reached at all gets it from a later run. */
function refusedReport({ report, delivery }: EndedDeployment): DeploymentError | undefined {
  if (report.outcome !== 'success' || delivery === undefined || delivery.accepted || delivery.status === null) {
    return undefined
  }
  return new DeploymentError(
    'report_refused',
    `Version ${report.version} is installed and stays, but the hub did not take the report of it, which the next run sends again. ${delivery.error}`,
  )
}
