import { z } from 'zod/mini'
import { type DeployError, toDeployError } from '../core/errors.ts'
import { hostIdSchema, kindSchema, slugSchema } from '../core/identifiers.ts'
import type { Log } from '../core/log.ts'
import { countInWords, fitList, listFirst } from '../core/text.ts'
import { compareHosts, type Fleet, hostsByVersion, outOfSync } from '../fleet/fleet.ts'
import type { HostReport } from '../fleet/host-report.ts'
import { type FleetRequest, watchFleet } from '../marketplace/fleet.ts'
import { createWire } from '../net/wire.ts'
import { readWorkspace } from '../runner/files.ts'
import { type Connection, readConnection, wireOptions } from '../runner/host-inputs.ts'
import {
  apiKeySchema,
  baseUrlSchema,
  exactVersionSchema,
  type GivenInputs,
  hostIdsSchema,
  hoursSchema,
  InputReader,
  inputError,
  integerSchema,
} from '../runner/inputs.ts'
import { type ReadingStepEnd, runReadingStep, type StepTools } from '../runner/step.ts'
import { buildFleetSummary, describeFleet, type FleetFacts } from '../runner/summaries/fleet.ts'

export interface FleetInputs extends GivenInputs {
  /** Undefined if there are problems. */
  readonly request: FleetRequest | undefined
  readonly slug: string | undefined
  readonly connection: Connection
}

/** GitHub accepts a megabyte of outputs from a job, and counts two bytes per character. */
const MAX_CHARS = { hosts: 200_000, versions: 100_000, outdated: 100_000 }
const MAX_WAIT_SECONDS = 86_400
const MAX_LOGGED_VERSIONS = 100
const MAX_LOGGED_HOSTS = 20
const HOUR_MS = 3_600_000

/**
 * The fleet action: asks the hub which version runs on which host. With `expect-version`, fails the step unless every
 * host runs that version.
 */
export async function fleet(): Promise<void> {
  await runReadingStep(() => readFleetInputs(readWorkspace()), askForFleet)
}

/** Reads every input of the fleet action and collects all problems. */
export function readFleetInputs(workspace: string): FleetInputs {
  const read = new InputReader('fleet', workspace)
  const hub = read.required('hub-url', baseUrlSchema)
  const deployments = read.withDefault<string | undefined>('deployments-url', baseUrlSchema, hub)
  const kind = read.withDefault('kind', z.pipe(z.string(), kindSchema), 'plugin')
  const slug = read.required('slug', slugSchema)
  const keys = readKeys(read)
  const question = readQuestion(read)
  const connection = readConnection(read)
  const given = read.given()
  // If there are no problems, every required input was parsed, and only optional ones are undefined.
  const access = { bases: { hub, deployments }, kind, slug, ...keys } as FleetRequest['access']
  const request = given.problems.length > 0 ? undefined : { access, ...question }
  return { request, slug, connection, ...given }
}

function readKeys(read: InputReader): Pick<FleetRequest['access'], 'apiKey' | 'accessToken'> {
  const before = read.secrets.length
  const apiKey = read.optionalSecret('api-key', apiKeySchema)
  const accessToken = read.optionalSecret('access-token', apiKeySchema)
  if (read.secrets.length === before)
    read.require(
      'api-key or access-token is required, but neither was given (is the secret defined in this repository or environment?)',
    )
  return { apiKey, accessToken }
}

function readQuestion(read: InputReader): Omit<FleetRequest, 'access'> {
  const maxAgeHours = read.optional('max-age-hours', hoursSchema)
  const waitSeconds = read.withDefault('wait-seconds', integerSchema(0, MAX_WAIT_SECONDS), 0) ?? 0
  return {
    expectVersion: read.optional('expect-version', exactVersionSchema),
    expectHosts: read.optional('expect-hosts', hostIdsSchema),
    maxAgeMs: maxAgeHours === undefined ? undefined : maxAgeHours * HOUR_MS,
    stoppedAt: read.optional('stopped-at', hostIdSchema),
    waitMs: waitSeconds * 1000,
  }
}

async function askForFleet({ request, slug, ...inputs }: FleetInputs, tools: StepTools): Promise<ReadingStepEnd> {
  try {
    if (request === undefined) throw inputError(inputs.problems)
    const { log, signal, now } = tools
    const wire = createWire({ ...wireOptions(inputs.connection, log), signal })
    if (request.expectVersion === undefined && request.waitMs > 0)
      log.notice('wait-seconds has no effect without expect-version: there is nothing to wait for.')
    const redact = (text: string): string => tools.secrets.redact(text)
    const seen = await watchFleet(request, { wire, log, signal, redact, now: () => now().getTime() })
    return endOf(request, seen, tools)
  } catch (thrown) {
    const error = toDeployError(thrown)
    const facts = { slug, fleet: undefined, error, isGate: true, stoppedAt: request?.stoppedAt, notes: [], now: 0 }
    return endWith(facts, UNKNOWN, tools)
  }
}

/** Ends the step. A stopped rollout is annotated, because the error does not mention it. */
function endWith(facts: FleetFacts, outputs: ReadingStepEnd['outputs'], { log }: StepTools): ReadingStepEnd {
  const { sentence } = describeFleet(facts)
  if (facts.stoppedAt !== undefined) log.warning(`${sentence}.`)
  return { outputs, error: facts.error, summary: buildFleetSummary(facts), sentence }
}

/** The outputs of a step that learned nothing: an unknown fleet is not in sync. */
const UNKNOWN = { hosts: '', versions: '', 'in-sync': 'false', outdated: '' }

interface SeenFleet {
  readonly fleet: Fleet | undefined
  readonly error: DeployError | undefined
}

function endOf(
  { access, expectVersion, stoppedAt }: FleetRequest,
  { fleet, error: failure }: SeenFleet,
  tools: StepTools,
): ReadingStepEnd {
  const { log, now } = tools
  const isGate = expectVersion !== undefined
  const error = failure ?? (fleet !== undefined && isGate && !fleet.inSync ? outOfSync(fleet, access) : undefined)
  const lists = fleet && buildLists(fleet)
  const notes = [...(fleet?.notes ?? []), ...(fleet === undefined ? [] : unsafeIn(fleet)), ...(lists?.cut ?? [])]
  for (const note of notes) log.notice(note)
  if (fleet !== undefined) logFleet(fleet, log)
  const facts = { slug: access.slug, fleet, error, isGate, stoppedAt, notes, now: now().getTime() }
  const inSync = String(failure === undefined && fleet?.inSync === true)
  const outputs = { ...UNKNOWN, ...lists?.outputs, 'in-sync': inSync }
  return endWith(facts, outputs, tools)
}

function logFleet({ reports }: Fleet, log: Log): void {
  const versions = [...hostsByVersion(reports)]
  for (const [version, ids] of versions.slice(0, MAX_LOGGED_VERSIONS))
    log.info(`${version}: ${ids.length} ${ids.length === 1 ? 'host' : 'hosts'} (${listFirst(ids, MAX_LOGGED_HOSTS)})`)
  if (versions.length > MAX_LOGGED_VERSIONS)
    log.info(`and ${countInWords(versions.length - MAX_LOGGED_VERSIONS, 'more version')}`)
  const unknown = reports.filter(({ version }) => version === null).map(({ hostId }) => hostId)
  if (unknown.length > 0) log.info(`unknown version: ${unknown.length} (${listFirst(unknown, MAX_LOGGED_HOSTS)})`)
}

function unsafeIn({ unsafe }: Fleet): string[] {
  if (unsafe === 0) return []
  return [
    `${countInWords(unsafe, 'host')} ${unsafe === 1 ? 'is' : 'are'} not in the output outdated, because a workflow could not use ${unsafe === 1 ? 'its name' : 'their names'} safely: to include every host, list all of them in expect-hosts.`,
  ]
}

function buildLists(fleet: Fleet): { outputs: Record<string, string>; cut: string[] } {
  const [hosts, outdated] = [fitHosts(fleet), fitList(fleet.outdated, MAX_CHARS.outdated)]
  const versions = fitVersions(fleet.reports)
  const cut = Object.entries({ hosts, versions, outdated }).flatMap(([name, { omitted }]) =>
    omitted === 0 ? [] : [`The output ${name} is truncated: it has no room for ${countInWords(omitted, 'more host')}.`],
  )
  return { outputs: { hosts: hosts.json, versions: versions.json, outdated: outdated.json }, cut }
}

/** Lists as many hosts as fit. Hosts that are not `current` go in first; the list itself is in natural order. */
function fitHosts({ hosts, reports }: Fleet) {
  const current = new Set(hosts.flatMap(({ id, standing }) => (standing === 'current' ? [id] : [])))
  const isBehind = ({ hostId }: HostReport): boolean => !current.has(hostId)
  const inOrder = [...reports.filter(isBehind), ...reports.filter(report => !isBehind(report))]
  const { omitted } = fitList(inOrder.map(hostEntry), MAX_CHARS.hosts)
  const kept = inOrder.slice(0, inOrder.length - omitted).toSorted((a, b) => compareHosts(a.hostId, b.hostId))
  return { json: JSON.stringify(kept.map(hostEntry)), omitted }
}

function hostEntry({ hostId, version, status, completedAt, error }: HostReport) {
  return { host_id: hostId, version, status, completed_at: completedAt, error_message: error }
}

function fitVersions(reports: readonly HostReport[]) {
  const texts: string[] = []
  let [room, omitted] = [MAX_CHARS.versions, 0]
  for (const [version, ids] of hostsByVersion(reports)) {
    const list = fitList(ids, Math.max(room - version.length, 0))
    omitted += list.omitted
    room -= version.length + list.json.length + 4
    if (list.omitted < ids.length) texts.push(`${JSON.stringify(version)}:${list.json}`)
  }
  return { json: `{${texts.join(',')}}`, omitted }
}
