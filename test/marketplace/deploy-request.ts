import { tmpdir } from 'node:os'
import type { TestContext } from 'node:test'
import { openPrivateFileSync } from '../../src/install/files/open.ts'
import { startContract } from '../../src/install/run/contract.ts'
import {
  type ArtifactDeployment,
  type DeployRequest,
  MARKETPLACE,
  MARKETPLACE_TRANSITIONS,
} from '../../src/marketplace/deployment.ts'
import type { ArtifactRequest } from '../../src/marketplace/hub.ts'
import { temporaryDirectory } from '../folders.ts'
import { toolsOf } from '../install/prepared-deployment.ts'
import { type CollectedLog, collectLog } from '../install/prepared-host.ts'
import { createTestedWire } from '../net/tested-wire.ts'

/** The fields of a request that a test must set, and those that it may set. */
type TestRequest = Pick<DeployRequest, 'projectRoot'> & Partial<DeployRequest> & { hub: string }

/** A request to deploy greeter on host-1, with small limits, and without waiting for a lock. */
export function deployRequest({ hub, ...more }: TestRequest): DeployRequest {
  return {
    bases: { hub, services: hub, deployments: hub },
    slug: 'greeter',
    pluginsDirectory: undefined,
    kind: 'plugin',
    version: 'latest',
    apiKey: 'key',
    signingSecret: 'secret',
    plan: { path: 'install.yaml', text: 'apiVersion: hub-deploy/v1' },
    hostConfig: undefined,
    hostId: 'host-1',
    pluginSecretKey: undefined,
    artifactSha256: undefined,
    allowSharedRoot: false,
    allowDowngrade: false,
    dryRun: false,
    checkOnly: false,
    keepSnapshots: 3,
    keepReports: 200,
    lockTimeoutMs: 0,
    downloadTimeoutMs: 20_000,
    keepPaths: [],
    settings: new Map(),
    allowTakeover: false,
    redeploy: false,
    maxArtifactBytes: 1024 * 1024,
    extraction: { maxExtractedBytes: 1024 * 1024, maxEntries: 100 },
    ...more,
  }
}

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
  return { deployment: startContract({ ...MARKETPLACE, transitions: MARKETPLACE_TRANSITIONS }, request, tools), log }
}

/** A request to fetch one version into a file without a name, which is closed when the test ends. */
export function artifactRequest(t: TestContext, version: string): ArtifactRequest {
  const file = openPrivateFileSync(tmpdir())
  t.after(() => file.close())
  return {
    version,
    fd: file.fd,
    maxBytes: 1024 * 1024,
    timeoutMs: 20_000,
    signingSecret: 'the developer signs with this',
    onProgress: () => {},
  }
}
