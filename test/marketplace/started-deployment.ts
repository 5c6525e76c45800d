import type { TestContext } from 'node:test'
import { type ArtifactDeployment, startDeployment } from '../../src/marketplace/deployment.ts'
import type { DeployRequest } from '../../src/marketplace/request.ts'
import { type CollectedLog, collectLog } from '../install/collected-log.ts'
import { toolsOf } from '../install/prepared-deployment.ts'
import { temporaryDirectory } from '../install/temporary-directory.ts'
import { createTestedWire } from '../net/tested-wire.ts'
import { deployRequest } from './deploy-request.ts'

const PLAN = `format_version: "1"
project_id: greeter
version: "1"
steps:
  - {id: files, action: install_plugin, plugin: greeter}
`

/** A deployment from this hub that has not entered a state yet. */
export function startedDeployment(
  t: TestContext,
  hub: string,
  more: Partial<DeployRequest> = {},
): { deployment: ArtifactDeployment; log: CollectedLog } {
  const log = collectLog()
  const wire = createTestedWire()
  const plan = { path: 'install.yaml', text: PLAN }
  const request = deployRequest({ hub, plan, projectRoot: temporaryDirectory(t), ...more })
  const tools = toolsOf({ log, wires: { wire, reportWire: wire } })
  return { deployment: startDeployment(request, tools), log }
}
