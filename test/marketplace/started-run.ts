import { tmpdir } from 'node:os'
import type { TestContext } from 'node:test'
import type { DeployRequest } from '../../src/marketplace/request.ts'
import { type Run, startRun } from '../../src/marketplace/run.ts'
import { type CollectedLog, collectLog } from '../install/collected-log.ts'
import { DEPLOYMENT_ID, factsOf, NO_REDACTION } from '../install/prepared-host.ts'
import { temporaryDirectory } from '../install/temporary-directory.ts'
import { createTestedWire } from '../net/tested-wire.ts'

/** A run against this hub, not yet on its way. */
export function startedRun(
  t: TestContext,
  hub: string,
  more: Partial<DeployRequest> = {},
): { run: Run; log: CollectedLog } {
  const log = collectLog()
  const wire = createTestedWire()
  const request: DeployRequest = {
    bases: { hub, services: hub, deployments: hub },
    slug: 'greeter',
    kind: 'plugin',
    version: 'latest',
    apiKey: 'key',
    signingSecret: 'secret',
    plan: { path: 'install.yaml', text: '' },
    hostConfig: undefined,
    projectRoot: temporaryDirectory(t),
    hostId: 'host-1',
    pluginSecretKey: undefined,
    artifactSha256: undefined,
    allowDowngrade: false,
    dryRun: false,
    keepSnapshots: 3,
    lockTimeoutMs: 0,
    downloadTimeoutMs: 20_000,
    keepPaths: [],
    maxArtifactBytes: 1024 * 1024,
    extraction: { maxExtractedBytes: 1024 * 1024, maxEntries: 100 },
    ...more,
  }
  const tools = {
    wire,
    reportWire: wire,
    log,
    signal: new AbortController().signal,
    now: () => new Date(),
    redact: NO_REDACTION,
    hide: () => {},
    run: factsOf().run,
    deploymentId: DEPLOYMENT_ID,
    temporaryFolder: tmpdir(),
    variables: {},
    onLocked: () => {},
    onCancelledEnd: () => {},
  }
  return { run: startRun(request, tools), log }
}
