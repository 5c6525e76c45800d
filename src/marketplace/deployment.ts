import type { ExtractionLimits } from '../core/archive/policy.ts'
import type { Kind } from '../core/identifiers.ts'
import type { Transitions } from '../core/state-machine.ts'
import type { SourceFile } from '../core/yaml/problems.ts'
import { type Shelf, shelfOf } from '../install/host/layout.ts'
import { versionAtStart } from '../install/host/previous-install.ts'
import { readInstalled } from '../install/host/record.ts'
import type { Contract, Links, Started, Subject } from '../install/run/contract.ts'
import { PLAN_TRANSITIONS, type PlanState } from '../install/run/deployment.ts'
import type { InstallOrder } from '../install/steps/context.ts'
import type { HostRequest } from '../install/transaction/record.ts'
import { createMarketplaceClient, createMarketplaceSender, type HubBases, type MarketplaceClient } from './hub.ts'

interface HubLinks extends Links {
  readonly shelf: Shelf
  readonly client: MarketplaceClient
}

export type ArtifactDeployment<State extends string = DeployState> = Started<DeployRequest, State, HubLinks>

/** The part of the marketplace contract that all its flows share. A check, too, changes and reports nothing. */
export const MARKETPLACE: Subject<DeployRequest> &
  Pick<Contract<DeployRequest, DeployState, HubLinks, never>, 'connect'> = {
  named: ({ kind, slug, version }) => ({
    contract: 'marketplace',
    kind: kind ?? null,
    slug: slug ?? null,
    id: null,
    requested_version: version ?? null,
  }),
  sender({ bases, slug, kind, apiKey }, { wires }) {
    if (bases === undefined || slug === undefined || kind === undefined || apiKey === undefined) return undefined
    const access = { bases, slug, kind, apiKey }
    return createMarketplaceSender(createMarketplaceClient(wires.reportWire, access), access)
  },
  isRehearsal({ dryRun, checkOnly }) {
    if (dryRun || checkOnly) return true
    return dryRun === undefined || checkOnly === undefined ? undefined : false
  },
  connect: (request, tools) => ({
    sender: MARKETPLACE.sender(request, tools),
    shelf: shelfOf(request.kind),
    client: createMarketplaceClient(tools.wires.wire, request),
  }),
}

/** The origin of everything that this deployment installs, for `installed.json`. */
export function originOf({ request }: Pick<ArtifactDeployment, 'request'>): InstallOrder['origin'] {
  return { contract: 'marketplace', slug: request.slug, project_version: null }
}

export type DeployState = 'pending' | 'fetching' | 'verifying_signature' | 'extracting' | PlanState

/** The states of the marketplace flow. Every path to `installing` passes `verifying_signature`. */
export const MARKETPLACE_TRANSITIONS: Transitions<DeployState> = {
  pending: ['fetching'],
  fetching: ['verifying_signature', 'failed'],
  verifying_signature: ['extracting', 'failed'],
  extracting: ['loading_plan', 'failed'],
  ...PLAN_TRANSITIONS,
}

export type CheckState = 'pending' | 'loading_plan' | 'healthchecking' | 'succeeded' | 'failed'

/** The states of a check of the installed version. */
export const CHECK_TRANSITIONS: Transitions<CheckState> = {
  pending: ['loading_plan'],
  loading_plan: ['healthchecking', 'failed'],
  healthchecking: ['succeeded', 'failed'],
  succeeded: [],
  failed: [],
}

/** The operator's request: parsed, and independent of where it was read. */
export interface DeployRequest extends HostRequest {
  bases: HubBases
  slug: string
  /** Undefined if the operator leaves the choice to the host. */
  pluginsDirectory: string | undefined
  kind: Kind
  /** A version, or `latest`. */
  version: string
  apiKey: string
  signingSecret: string
  /** Undefined for the default plan. */
  plan: SourceFile | undefined
  pluginSecretKey: string | undefined
  artifactSha256: string | undefined
  allowDowngrade: boolean
  /** True to only check the health of what is installed, which must be the named version with the pinned bytes. */
  checkOnly: boolean
  downloadTimeoutMs: number
  maxArtifactBytes: number
  extraction: ExtractionLimits
}

/**
 * Records the installed version of this slug before the plan says where the slug is installed, so that a refused run
 * can report that version.
 */
export async function noteInstalledVersion({ layout, request, record }: ArtifactDeployment): Promise<void> {
  const installed = readInstalled(layout).find(
    ({ contract, kind, slug }) => contract === 'marketplace' && kind === request.kind && slug === request.slug,
  )
  await record.update({ previous_version: installed ? versionAtStart(layout, installed) : null })
}
