import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { FLOWS } from '../../src/actions/flows.ts'
import { endlessGrace } from '../../src/install/files/child-process.ts'
import { type Layout, type Place, stagingPath } from '../../src/install/host/layout.ts'
import type { PreviousInstall } from '../../src/install/host/previous-install.ts'
import { startJournal } from '../../src/install/journal/journal.ts'
import type { HostContext } from '../../src/install/reports/host.ts'
import type { DeploymentTools } from '../../src/install/run/deployment.ts'
import type { InstallOrder, NewPart, StepContext } from '../../src/install/steps/context.ts'
import {
  createDeploymentRecord,
  type Deployment,
  type DeploymentRecord,
  type HostRequest,
} from '../../src/install/transaction/record.ts'
import { beginTransaction } from '../../src/install/transaction/transaction.ts'
import { DriftCheck } from '../../src/install/trees/drift.ts'
import type { Wire } from '../../src/net/wire.ts'
import { collectLog, DEPLOYMENT_ID, factsOf, NO_SECRETS } from './prepared-host.ts'

const NO_WIRE: Wire = {
  requestJson: async () => assert.fail('called the hub'),
  download: async () => assert.fail('called the hub'),
  routeForChild: async () => assert.fail('asked for a route'),
}

/** A host without a hub to report to, with the state tables of all flows. */
export function hostOf(layout: Layout, more: Partial<HostContext> = {}): HostContext {
  return {
    layout,
    sharedRoot: { isAllowed: false },
    log: collectLog(),
    secrets: NO_SECRETS,
    sender: undefined,
    grace: endlessGrace(),
    run: { id: randomUUID(), url: null },
    flows: FLOWS,
    ...more,
  }
}

export function requestOf(layout: Layout, more: Partial<HostRequest> = {}): HostRequest {
  return {
    projectRoot: layout.root,
    allowSharedRoot: false,
    hostId: 'host-1',
    hostConfig: undefined,
    keepSnapshots: 3,
    keepReports: 200,
    lockTimeoutMs: 0,
    keepPaths: [],
    settings: new Map(),
    allowTakeover: false,
    redeploy: false,
    dryRun: false,
    ...more,
  }
}

/** Tools of a run that cannot reach a hub and is not cancelled. */
export function toolsOf(more: Partial<DeploymentTools> = {}): DeploymentTools {
  return {
    log: collectLog(),
    signal: new AbortController().signal,
    now: () => new Date(),
    secrets: NO_SECRETS,
    runner: { workflow: factsOf().run, temporaryFolder: tmpdir() },
    deploymentId: DEPLOYMENT_ID,
    wires: { wire: NO_WIRE, reportWire: NO_WIRE },
    observer: { onBegun: () => {}, onProgress: () => {}, onEnded: () => {} },
    grace: endlessGrace(),
    flows: FLOWS,
    ...more,
  }
}

/** The record of a deployment that has only begun. */
export function newRecord(): DeploymentRecord {
  const facts = factsOf()
  return createDeploymentRecord(facts, [{ state: 'pending', at: facts.started_at }])
}

/** A deployment that has only begun, without a journal. */
export function deploymentOf(
  layout: Layout,
  more: { request?: Partial<HostRequest>; tools?: Partial<DeploymentTools>; clockMs?: () => number } = {},
): Deployment {
  const [request, tools] = [requestOf(layout, more.request), toolsOf(more.tools)]
  const keepPathsOf = () => request.keepPaths
  const drift = new DriftCheck({
    layout,
    log: tools.log,
    keepPathsOf,
    signal: tools.signal,
    ...(more.clockMs && { clockMs: more.clockMs }),
  })
  return { request, tools, layout, keepPathsOf, record: newRecord(), drift }
}

/** The context of a plan's steps: an order without steps or parts, an open journal, and an empty staging folder. */
export async function contextOf(
  t: TestContext,
  deployment: Deployment,
  order: Partial<InstallOrder> = {},
): Promise<StepContext> {
  const { layout, tools } = deployment
  const begin = { facts: deployment.record.facts, report_address: null, keep_paths: [] }
  const journal = await startJournal(layout.journal, { record: 'begin', ...begin })
  t.after(() => journal.close())
  const stagingFolder = stagingPath(layout, tools.deploymentId)
  mkdirSync(stagingFolder)
  return {
    deployment,
    order: {
      steps: [],
      parts: [],
      removals: [],
      origin: { contract: 'marketplace', slug: 'greeter', project_version: null },
      snapshot: true,
      hostConfig: undefined,
      skipped: new Set(),
      ...order,
    },
    transaction: beginTransaction({ root: layout.root, journal, log: tools.log }),
    idle: new Set(),
    stagingFolder,
    results: new Map(),
  }
}

/** The findings of a deployment about a part for which this host has no record. */
export function previousOf(more: Partial<PreviousInstall> = {}): PreviousInstall {
  return { installed: undefined, removed: undefined, version: null, ...more }
}

/** Version 2.0.0 of `plugins/x`, staged in `tree` below the staging folder. This host has no record of the plugin. */
export function partOf(layout: Layout, more: Partial<NewPart> = {}): NewPart {
  const place: Place = { shelf: 'plugins', id: 'x', directory: 'plugins' }
  return {
    ...place,
    version: '2.0.0',
    artifactSha256: 'ab'.repeat(32),
    staged: join(stagingPath(layout, DEPLOYMENT_ID), 'tree'),
    tree: { files: [], symlinks: [] },
    environment: { required: [], optional: [] },
    previous: previousOf(),
    ...more,
  }
}
