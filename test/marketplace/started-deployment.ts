import type { TestContext } from 'node:test'
import { type ArtifactDeployment, startDeployment } from '../../src/marketplace/deployment.ts'
import type { DeployRequest } from '../../src/marketplace/request.ts'
import { type CollectedLog, collectLog } from '../install/collected-log.ts'
import { toolsOf } from '../install/prepared-deployment.ts'
import { temporaryDirectory } from '../install/temporary-directory.ts'
import { createTestedWire } from '../net/tested-wire.ts'

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
  const request: DeployRequest = {
    bases: { hub, services: hub, deployments: hub },
    slug: 'greeter',
    kind: 'plugin',
    version: 'latest',
    apiKey: 'key',
    signingSecret: 'secret',
    plan: { path: 'install.yaml', text: PLAN },
    hostConfig: undefined,
    projectRoot: temporaryDirectory(t),
    hostId: 'host-1',
    pluginSecretKey: undefined,
    artifactSha256: undefined,
    allowSharedRoot: false,
    allowDowngrade: false,
    dryRun: false,
    keepSnapshots: 3,
    lockTimeoutMs: 0,
    downloadTimeoutMs: 20_000,
    keepPaths: [],
    settings: new Map(),
    allowTakeover: false,
    maxArtifactBytes: 1024 * 1024,
    extraction: { maxExtractedBytes: 1024 * 1024, maxEntries: 100 },
    ...more,
  }
  const tools = toolsOf({ log, wires: { wire, reportWire: wire } })
  return { deployment: startDeployment(request, tools), log }
}
