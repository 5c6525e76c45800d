import { type DeployError, toDeployError } from '../core/errors.ts'
import type { Log } from '../core/log.ts'
import { buildFleet, describeProgress, type Fleet, type FleetQuestion } from '../fleet/fleet.ts'
import { type HostReports, parseHostReports, type Reading } from '../fleet/host-report.ts'
import { type Clock, systemClock } from '../install/files/child-process.ts'
import { TransientError } from '../net/exchange.ts'
import type { Wire } from '../net/wire.ts'
import { type HubBases, type MarketplaceSubject, marketplaceRefusal, namedBase, OWN_INPUTS, routeOf } from './hub.ts'

export interface FleetRequest extends FleetQuestion {
  readonly access: HostsAccess
  /** The time to wait for the expected version, in milliseconds. */
  readonly waitMs: number
}

interface FleetTools {
  readonly wire: Wire
  readonly log: Log
  readonly redact: (text: string) => string
  readonly signal: AbortSignal
  /** Milliseconds since 1970. The age of a report is judged by this clock. */
  readonly now: () => number
  readonly clock?: Clock
}

/** The last known state of the fleet, and the error of the last question if that question got no usable answer. */
interface WatchedFleet {
  /** Undefined if no question got a usable answer. */
  readonly fleet: Fleet | undefined
  readonly error: DeployError | undefined
}

const [FIRST_POLL_MS, MAX_POLL_MS] = [2000, 15_000]
const REPORT_EVERY_MS = 60_000

/**
 * Asks the hub which version runs on which host. With an expected version, asks again until every host is known to run
 * it or the time is up; waits at most 15 s between two questions. After an error, asks again only if the error may go
 * away. Throws only the signal's reason, once the signal is aborted.
 */
export async function watchFleet(request: FleetRequest, tools: FleetTools): Promise<WatchedFleet> {
  const { log, signal, clock = systemClock } = tools
  const deadline = clock.now() + (request.expectVersion === undefined ? 0 : request.waitMs)
  const report = reporterOf(log, clock)
  let fleet: Fleet | undefined
  for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(pollMs * 2, MAX_POLL_MS)) {
    const seen = await askOnce(request, tools)
    signal.throwIfAborted()
    fleet = seen.fleet ?? fleet
    const left = deadline - clock.now()
    const isOver = seen.error === undefined ? seen.fleet?.inSync : !isPassing(seen.error)
    if (isOver || left <= 0) return { fleet, error: seen.error }
    report(`${describeLook(seen)} (${Math.ceil(left / 1000)} s left).`)
    await clock.sleep(Math.min(pollMs, left), signal)
  }
}

async function askOnce(
  { access, ...question }: FleetRequest,
  { wire, redact, now }: FleetTools,
): Promise<WatchedFleet> {
  try {
    const found = await readHosts(wire, access, { redact, now: now() })
    return { fleet: buildFleet(found, question, now()), error: undefined }
  } catch (error) {
    return { fleet: undefined, error: toDeployError(error) }
  }
}

function describeLook({ fleet, error }: WatchedFleet): string {
  if (fleet !== undefined) return describeProgress(fleet)
  return `Asking again, because the hub gave no usable answer: ${error?.message.replace(/\.$/, '')}`
}

/** Logs a line if it differs from the last logged one in more than the remaining time, and otherwise once a minute. */
function reporterOf(log: Log, clock: Clock): (line: string) => void {
  let [said, at] = ['', Number.NEGATIVE_INFINITY]
  return line => {
    const news = line.replace(/ \(\d+ s left\)\.$/, '')
    if (news === said && clock.now() - at < REPORT_EVERY_MS) return
    log.info(line)
    said = news
    at = clock.now()
  }
}

/** True for an error that may soon go away, because the hub is restarting or the network is briefly down. */
function isPassing(error: DeployError): boolean {
  return error instanceof TransientError || error.code === 'timeout'
}

const HOSTS_TIMEOUT_MS = 60_000
const MAX_HOSTS_BYTES = 16 * 1024 * 1024

/** The plugin or service to ask about, the hub, and the credentials. */
interface HostsAccess extends MarketplaceSubject {
  readonly bases: Pick<HubBases, 'hub' | 'deployments'>
  readonly apiKey: string | undefined
  readonly accessToken: string | undefined
}

/**
 * Reads the newest report of each host that belongs to the owner of the credentials
 * (docs/contracts.md, "Hosts answer"). Throws AuthenticationError `authentication_failed`, ArtifactError `not_found`,
 * `artifact_unavailable` or `bad_response`, and whatever the wire throws.
 */
async function readHosts(wire: Wire, access: HostsAccess, reading: Reading): Promise<HostReports> {
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
    const hint = accessToken === undefined ? ' Some hubs answer this only to an access-token: give one.' : ''
    throw marketplaceRefusal(answer, { kind, slug, inputs }, { name: 'the hosts', base, isSigned: false, hint })
  }
  return parseHostReports(answer.body, access, reading)
}

/** The inputs whose credentials were sent, for a message. */
function credentialsOf({ apiKey, accessToken }: HostsAccess): string {
  if (apiKey === undefined) return 'access-token'
  return accessToken === undefined ? 'api-key' : 'api-key and access-token'
}
