import { type HostReports, parseHostReports, type Reading } from '../../fleet/host-report.ts'
import type { Wire } from '../../net/wire.ts'
import { routeOf } from './client.ts'
import { type HubBases, namedBase } from './hub-bases.ts'
import { OWN_INPUTS } from './input-names.ts'
import { type MarketplaceSubject, refusal } from './refusal.ts'

const HOSTS_TIMEOUT_MS = 60_000
const MAX_HOSTS_BYTES = 16 * 1024 * 1024

/** The plugin or service to ask about, the hub, and the credentials. */
export interface HostsAccess extends MarketplaceSubject {
  readonly bases: Pick<HubBases, 'hub' | 'deployments'>
  readonly apiKey: string | undefined
  readonly accessToken: string | undefined
}

/**
 * Reads the newest report of each host that belongs to the owner of the credentials
 * (docs/contracts.md, "Hosts answer"). Throws AuthenticationError `authentication_failed`, ArtifactError `not_found`,
 * `artifact_unavailable` or `bad_response`, and whatever the wire throws.
 */
export async function readHosts(wire: Wire, access: HostsAccess, reading: Reading): Promise<HostReports> {
  const { bases, kind, slug, apiKey, accessToken } = access
  const answer = await wire.requestJson({
    method: 'GET',
    url: routeOf(bases.deployments, 'deployments', kind, slug, 'hosts'),
    credentials: {
      ...(apiKey === undefined ? {} : { 'X-API-Key': apiKey }),
      ...(accessToken === undefined ? {} : { Authorization: `Bearer ${accessToken}` }),
    },
    retry: 'transient',
    timeoutMs: HOSTS_TIMEOUT_MS,
    maxBytes: MAX_HOSTS_BYTES,
  })
  if (answer.status !== 200) {
    const base = namedBase(bases, 'deployments', OWN_INPUTS)
    const inputs = { ...OWN_INPUTS, subject: 'slug, kind', apiKey: credentialsOf(access) }
    throw refusal(answer, { kind, slug, inputs }, { name: 'the hosts', base, isSigned: false })
  }
  return parseHostReports(answer.body, access, reading)
}

/** The inputs whose credentials were sent, for a message. */
function credentialsOf({ apiKey, accessToken }: HostsAccess): string {
  if (apiKey === undefined) return 'access-token'
  return accessToken === undefined ? 'api-key' : 'api-key and access-token'
}
