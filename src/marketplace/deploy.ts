import type { DeploymentTools } from '../install/deployment/deployment.ts'
import { runDeployment } from '../install/deployment/run.ts'
import type { OpenDeployment } from '../install/deployment/session.ts'
import type { Installation } from '../install/host/installed.ts'
import { installPath } from '../install/host/layout.ts'
import { checkHost } from '../install/host/readiness.ts'
import { dryRun } from './dry-run.ts'
import { installPrepared } from './install-prepared.ts'
import { type ReadyArtifactPlan, readyArtifactPlan } from './plan.ts'
import { prepareArtifact } from './prepare.ts'
import { noteInstalledVersion, notePrevious } from './previous.ts'
import type { DeployRequest, DeployResult } from './request.ts'
import { type Run, startRun } from './run.ts'

/**
 * Deploys one plugin or service by the marketplace contract. However it ends, the host runs exactly the old version or
 * exactly the new one (or the outcome says `inconsistent`), the local report says which, and the hub is told as best it
 * can be (contract 4.3). Never throws for what happens on the way: it is in the result.
 */
export async function deploy(request: DeployRequest, tools: DeploymentTools): Promise<DeployResult> {
  const run = startRun(request, tools)
  return request.dryRun ? dryRun(run) : deployOnHost(run)
}

async function deployOnHost(run: Run): Promise<DeployResult> {
  let ready: ReadyArtifactPlan | undefined
  const ended = await runDeployment(run, {
    async prepare() {
      await noteInstalledVersion(run)
      ready = readyArtifactPlan(run.request)
      await run.record.update({ id: ready.id })
    },
    install: deployment => install(run, ready as ReadyArtifactPlan, deployment),
  })
  return {
    ...ended,
    installPath: ready && installPath(run.layout, { shelf: run.shelf, id: ready.id }),
    plannedSteps: ready?.steps.map(({ id, action }) => ({ id, action })) ?? [],
  }
}

async function install(run: Run, ready: ReadyArtifactPlan, deployment: OpenDeployment): Promise<Installation> {
  const previous = await notePrevious(run, ready.id)
  checkHost(run.layout, { shelf: run.shelf, id: ready.id })
  const prepared = await prepareArtifact(run, ready, deployment.stagingFolder, previous)
  return installPrepared(run, prepared, previous, deployment)
}
