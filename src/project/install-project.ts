import { installThings } from '../install/deployment/install.ts'
import type { OpenDeployment } from '../install/deployment/session.ts'
import type { Installation } from '../install/host/installed.ts'
import type { ReadyProject } from './bind-project.ts'
import type { Run } from './run.ts'

/** The states `installing`, `healthchecking` and `notifying`: the plan's steps in their order, all in one transaction. */
export async function installProject(
  run: Run,
  prepared: ReadyProject,
  deployment: OpenDeployment,
): Promise<Installation> {
  const { bound, things, oldThings, hostConfig, skipped, manifest } = prepared
  const firstOfTail = bound.steps.findLastIndex(step => step.action !== 'notify') + 1
  const tail = new Set(bound.steps.slice(firstOfTail))
  const order = {
    steps: bound.steps,
    snapshot: bound.snapshot,
    hostConfig,
    skipped,
    things,
    oldThings,
    origin: { contract: 'project' as const, slug: run.request.projectId, project_version: manifest.version },
    async beforeStep(step: (typeof bound.steps)[number]) {
      if (step.action === 'healthcheck' || tail.has(step)) await reach(run, 'healthchecking')
      if (tail.has(step)) await reach(run, 'notifying')
    },
  }
  const installation = await installThings(run, order, deployment)
  await reach(run, 'healthchecking')
  await reach(run, 'notifying')
  return installation
}

/** Whatever steps the plan has, the flow passes each of its states once. */
async function reach(run: Run, state: 'healthchecking' | 'notifying'): Promise<void> {
  const before = state === 'healthchecking' ? 'installing' : 'healthchecking'
  if (run.machine.current === before) await run.enter(state)
}
