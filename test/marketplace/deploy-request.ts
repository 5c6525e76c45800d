import type { DeployRequest } from '../../src/marketplace/request.ts'

/** The fields of a request that a test must set, and those that it may set. */
export type TestRequest = Pick<DeployRequest, 'projectRoot'> & Partial<DeployRequest> & { hub: string }

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
