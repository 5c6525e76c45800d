import { type DeployError, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { describeProgress } from '../../fleet/describe.ts'
import { buildFleet, type Fleet, type FleetQuestion } from '../../fleet/fleet.ts'
import { type Clock, systemClock } from '../../install/files/clock.ts'
import type { Wire } from '../../net/wire.ts'
import { type HostsAccess, readHosts } from './hosts.ts'

export interface FleetRequest extends FleetQuestion {
  readonly access: HostsAccess
  /** How long to wait for the expected version. */
  readonly waitMs: number
}

export interface FleetTools {
  readonly wire: Wire
  readonly log: Log
  readonly redact: (text: string) => string
  readonly signal: AbortSignal
  /** Milliseconds since 1970, by which the age of a report is judged. */
  readonly now: () => number
  readonly clock?: Clock
}

/** The fleet as it was seen last, and what prevented another look. */
export interface WatchedFleet {
  /** Undefined where it was never seen. */
  readonly fleet: Fleet | undefined
  readonly error: DeployError | undefined
}

const [FIRST_POLL_MS, MAX_POLL_MS] = [2000, 15_000]
const REPORT_EVERY_MS = 60_000

/**
 * Asks the hub which version runs on which host, and asks again until every host is on the expected version or the time
 * is up, at most 15 s apart. While there is time, a hub that cannot be reached is asked again; one that refuses is not.
 * Throws only the signal's reason once it is aborted.
 */
export async function watchFleet(request: FleetRequest, tools: FleetTools): Promise<WatchedFleet> {
  const { log, signal, clock = systemClock } = tools
  const deadline = clock.now() + (request.expectVersion === undefined ? 0 : request.waitMs)
  const report = reporterOf(log, clock)
  let fleet: Fleet | undefined
  for (let pollMs = FIRST_POLL_MS; ; pollMs = Math.min(pollMs * 2, MAX_POLL_MS)) {
    const seen = await look(request, tools)
    signal.throwIfAborted()
    fleet = seen.fleet ?? fleet
    const left = deadline - clock.now()
    const isOver = seen.error === undefined ? seen.fleet?.inSync : !isPassing(seen.error)
    if (isOver || left <= 0) return { fleet, error: seen.error }
    report(`${describeLook(seen)} (${Math.ceil(left / 1000)} s left).`)
    await clock.sleep(Math.min(pollMs, left), signal)
  }
}

async function look({ access, ...question }: FleetRequest, { wire, redact, now }: FleetTools): Promise<WatchedFleet> {
  try {
    const found = await readHosts(wire, access, { redact, now: now() })
    return { fleet: buildFleet(found, question, now()), error: undefined }
  } catch (error) {
    return { fleet: undefined, error: toDeployError(error) }
  }
}

function describeLook({ fleet, error }: WatchedFleet): string {
  if (fleet !== undefined) return describeProgress(fleet)
  return `The hub could not be asked; trying again: ${error?.message.replace(/\.$/, '')}`
}

/** A line whenever it says something else than the last one, and once a minute. */
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

/** Whether the same question may soon be answered: the hub is restarted, or the network is gone for a moment. */
function isPassing({ code }: DeployError): boolean {
  return code === 'network' || code === 'timeout' || code === 'artifact_unavailable'
}
