import { connect } from 'node:net'
import { basename } from 'node:path'
import { DeploymentError, errnoOf, toDeployError } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import type { HealthProbe, HostConfig, HostHealthcheck } from '../../core/plan/host-config.ts'
import { DEFAULT_HEALTHCHECK_SECONDS, type PlanStep } from '../../core/plan/step.ts'
import { cleanForeignText, durationInWords } from '../../core/text.ts'
import { ANSWER_ADVICE, CONNECTION_ADVICE, ISSUER_ADVICE } from '../../net/exchange.ts'
import { createWire } from '../../net/wire.ts'
import { allowedEnvironment, type Clock, runChild, systemClock } from '../files/child-process.ts'
import {
  changedVariable,
  describeChildEnd,
  type Limits,
  logCommand,
  type ParsedState,
  projectServiceOf,
  readRestarts,
  readServiceRun,
  readServiceState,
  type Service,
  serviceOf,
  shortName,
} from './supervise.ts'

/** A single probe that takes longer counts as failed, which may leave time for another probe. */
const PROBE_TIMEOUT_MS = 10_000
/** With less time left, no further probe starts: a probe that is cut short would hide why the previous probe failed. */
const SHORTEST_PROBE_MS = 200
/** A timer may fire this many milliseconds too early. */
const TIMER_MS = 1
const MAX_RESTORED_SECONDS = 60
const MAX_BRIEF_CHARS = 120

interface HealthRequest {
  healthcheck: Healthcheck
  /** Replaces `{version}` in the check's `body`. */
  version: string | null
  /** Whether the deployment has changed what the host runs. */
  changed: boolean
  /** Whether `version` is the old version, after a rollback. */
  isRestored?: boolean
  log: Log
  signal: AbortSignal
}

/** Evidence that a service is healthy. */
interface Health {
  /** One line, from the last probe. */
  readonly evidence: string
  /** In a few words: the last finding, and how long the service had to be healthy. */
  readonly brief: string
}

/**
 * Waits until the supervisor reports the service as running and the configured check passes, both without a break for
 * the check's `stable_for` period. Without a service or without a check, waits only for the other. With a service, this
 * period is at least 3 s, or half of the timeout if that is shorter. A new start of the service is a break.
 *
 * Throws DeploymentError `unhealthy` with the last evidence if no attempt succeeds, or `step_failed` if the supervisor
 * could not say how the service is. Also throws the signal's reason.
 */
export async function checkHealth(request: HealthRequest, clock: Clock = systemClock): Promise<Health> {
  const { timeout_seconds: seconds, retries } = request.healthcheck
  const subject = describeSubject(request)
  let finding: ProbeResult = { healthy: false, evidence: 'no probe was made' }
  for (let attempt = 1; attempt <= retries + 1; attempt++) {
    finding = await waitForHealth(request, clock)
    if (finding.healthy) return { evidence: finding.evidence, brief: inBrief(finding, request.healthcheck) }
    // The error below reports the last attempt.
    if (attempt <= retries)
      request.log.info(`In attempt ${attempt} of ${retries + 1}, ${subject} was not healthy: ${finding.evidence}`)
  }
  if (finding.isUnknown)
    throw new DeploymentError(
      'step_failed',
      `The health of ${subject.replace(/^The /, 'the ')} is not known: ${finding.evidence}`,
    )
  throw new DeploymentError(
    'unhealthy',
    `${subject} was not healthy ${retries === 0 ? `within ${seconds} s` : `in ${retries + 1} attempts of ${seconds} s each`}: ${finding.evidence}`,
    adviceFor(request),
  )
}

/** What the checks of restored versions found. */
interface RestoredHealth {
  /** False if a check failed; null if none did, but at least one service is not known to be healthy. */
  readonly healthy: boolean | null
  /** One sentence for each service that is not healthy, or not known to be. */
  readonly problems: readonly string[]
}

/**
 * Checks the health of older versions that were restored. Runs all checks at once, so that they take no longer than the
 * slowest of them. Throws the signal's reason once the signal is aborted.
 */
export async function findUnhealthy(
  checks: readonly RestoredCheck[],
  { log, signal }: Pick<HealthRequest, 'log' | 'signal'>,
): Promise<RestoredHealth> {
  const findings = checks.map(async ({ previous_version: version, ...healthcheck }) => {
    try {
      const once = onceBriefly(healthcheck)
      const { evidence, brief } = await checkHealth({
        healthcheck: once,
        version,
        changed: false,
        isRestored: true,
        log,
        signal,
      })
      log.info(`${once.id} is healthy again: ${evidence}`)
      log.did(`${once.id} is healthy again, ${brief}`)
      return []
    } catch (error) {
      signal.throwIfAborted()
      return [toDeployError(error)]
    }
  })
  const found = (await Promise.all(findings)).flat()
  const isUnhealthy = found.some(({ code }) => code !== 'step_failed')
  return { healthy: isUnhealthy ? false : found.length > 0 ? null : true, problems: found.map(error => error.message) }
}

/**
 * True if a service answers its check, but not as this version, for which the check's `body` asks: its process is not
 * that of the installed files. False if the check asks for no version.
 */
export async function isOtherVersion(check: HostHealthcheck, version: string, signal: AbortSignal): Promise<boolean> {
  if (check.probe.type !== 'http' || !check.probe.body?.includes('{version}')) return false
  const limits = { timeoutMs: PROBE_TIMEOUT_MS, signal }
  const { body, ...probe } = check.probe
  const named = await probeHttp({ ...probe, body: body.replaceAll('{version}', version) }, limits)
  return !named.healthy && (await probeHttp(probe, limits)).healthy
}

/** Says `restored`, because the old version and the new one have the same id. */
function describeSubject({ healthcheck: { id }, version, isRestored }: HealthRequest): string {
  return `${isRestored ? 'The restored ' : ''}${id}${version === null ? '' : ` ${version}`}`
}

/**
 * Allows one attempt of at most a minute, or of `stable_for` plus half a minute if that is longer, because every
 * rollback and recovery must end.
 */
function onceBriefly(healthcheck: Healthcheck): Healthcheck {
  const stable = healthcheck.check?.stableForSeconds ?? 0
  const seconds = Math.min(
    healthcheck.timeout_seconds,
    Math.max(MAX_RESTORED_SECONDS, stable + MAX_RESTORED_SECONDS / 2),
  )
  return { ...healthcheck, retries: 0, timeout_seconds: seconds }
}

/** Advises the operator to read the service's log; gives no advice for a check without a service. */
function adviceFor({ healthcheck: { service } }: HealthRequest): { next?: string } {
  return service === null ? {} : { next: `Read the service's log on the host: \`${logCommand(service)}\`` }
}

function inBrief({ evidence, brief = evidence }: ProbeResult, healthcheck: Healthcheck): string {
  const { stableMs } = paceOf(healthcheck)
  return `${cleanForeignText(brief, MAX_BRIEF_CHARS)}${stableMs === 0 ? '' : ` for ${durationInWords(stableMs)}`}`
}

async function waitForHealth(
  { healthcheck, version, changed, signal }: HealthRequest,
  clock: Clock,
): Promise<ProbeResult> {
  const expected = expectVersion(healthcheck, version)
  const { timeoutMs, stableMs, intervalMs } = paceOf(healthcheck)
  const deadline = clock.now() + timeoutMs
  const streak = beginStreak()
  let before: ProbeResult | undefined
  for (;;) {
    const probeMs = Math.max(1, Math.min(PROBE_TIMEOUT_MS, deadline - clock.now()))
    const finding = await probeService(expected, { timeoutMs: probeMs, changed, signal })
    const now = clock.now()
    streak.add(finding, now)
    const healthyMs = streak.healthyMs(now)
    if (healthyMs !== undefined && healthyMs >= stableMs) return withStarts(finding, streak.starts)
    const pauseMs = healthyMs === undefined ? intervalMs : Math.min(intervalMs, stableMs - healthyMs)
    if (now + pauseMs + SHORTEST_PROBE_MS >= deadline) {
      const last = deadline - now <= TIMER_MS ? uncut(finding, before) : finding
      return withStarts(unstable(last, stableMs), streak.starts)
    }
    before = finding
    await clock.sleep(pauseMs, signal)
  }
}

/** With neither a service nor a check, the finding is unhealthy. */
async function probeService({ service, check }: Healthcheck, limits: ProbeContext): Promise<ProbeResult & Sight> {
  const supervised = service === null ? UNEXAMINED : await probeSupervisor(service, limits)
  if (check === null || (service !== null && !supervised.healthy)) return supervised
  return { ...(await runProbe(check.probe, limits)), run: supervised.run }
}

const UNEXAMINED: ProbeResult & Sight = {
  healthy: false,
  evidence: 'the host config has no service and no check for it',
  run: [],
}

async function probeSupervisor(service: Service, limits: Limits): Promise<ProbeResult & Sight> {
  const state = await readServiceState(service, limits)
  const { running: healthy, evidence, known } = state
  if (!healthy) return { healthy, evidence, run: [], ...(known ? {} : { isUnknown: true }) }
  const run = await identifyRun(service, state, limits)
  return { healthy, evidence, brief: `${shortName(service)} is running`, run }
}

async function identifyRun(service: Service, state: ParsedState, limits: Limits): Promise<Sight['run']> {
  const run = await readServiceRun(service, limits)
  const restarts = await readRestarts(service, state, limits)
  return [run, restarts?.toString() ?? null]
}

/** A probe that the deadline cut short, as on a busy host, would hide why the previous probe failed. */
function uncut(finding: ProbeResult, before: ProbeResult | undefined): ProbeResult {
  return finding.healthy || before === undefined || before.healthy ? finding : before
}

function unstable(finding: ProbeResult, stableMs: number): ProbeResult {
  if (!finding.healthy) return finding
  return { healthy: false, evidence: `healthy, but not for ${stableMs / 1000} s without a break: ${finding.evidence}` }
}

function withStarts(finding: ProbeResult, starts: number): ProbeResult {
  if (starts === 0) return finding
  return { ...finding, evidence: `it started again during the check (times: ${starts}); ${finding.evidence}` }
}

const PROBE_ADVICE = 'check the service and its address in the host config.'

const MAX_MISMATCH_CHARS = 200

type ProbeOf<Type extends HealthProbe['type']> = Extract<HealthProbe, { type: Type }>

/** The result of one probe. */
interface ProbeResult {
  healthy: boolean
  /** One line: the status, and the beginning of the body or output. */
  evidence: string
  /** The evidence in a few words, without the body or output. Default: the evidence itself. */
  brief?: string
  /** The supervisor did not say how the service is. */
  isUnknown?: boolean
}

interface ProbeContext extends Limits {
  /** Whether the deployment has changed what the host runs. */
  readonly changed: boolean
}

/** Probes once. A probe that fails is a finding; only an abort of the signal throws. */
async function runProbe(probe: HealthProbe, limits: ProbeContext): Promise<ProbeResult> {
  switch (probe.type) {
    case 'http':
      return await probeHttp(probe, limits)
    case 'tcp':
      return await probeTcp(probe, limits)
    case 'command':
      return await probeCommand(probe, limits)
  }
}

async function probeHttp(probe: ProbeOf<'http'>, { timeoutMs, signal }: Limits): Promise<ProbeResult> {
  // The operator's own host config names the address, so plain http is the operator's choice.
  const wire = createWire({ allowHttp: true, userAgent: 'hub-deploy', log: () => {}, signal })
  try {
    const { status, headers, decoded, text } = await wire.requestJson({
      method: 'GET',
      url: probe.url,
      headers: { accept: '*/*' },
      retry: 'never',
      timeoutMs,
      followRedirects: false,
      anyBody: probe.body === undefined,
    })
    const matches = probe.body === undefined || decoded.includes(probe.body)
    const wanted =
      probe.body === undefined ? '' : `, ${matches ? 'with' : 'without'} \`${cleanForeignText(probe.body, 100)}\``
    // A page without the expected text is quoted only briefly, because the log quotes it again for each attempt.
    const quoted = matches ? text : cleanForeignText(text, MAX_MISMATCH_CHARS)
    const { location } = headers
    const target = location === undefined ? '' : ` to ${cleanForeignText(location, 100)}`
    const expected = status === probe.status ? '' : `${target} (expected ${probe.status})`
    const brief = `HTTP ${status}${expected}${wanted}`
    return { healthy: status === probe.status && matches, evidence: `${brief}: ${quoted}`, brief }
  } catch (error) {
    signal.throwIfAborted()
    const { host, port, protocol } = new URL(probe.url)
    const address = port === '' ? `${host}:${protocol === 'https:' ? 443 : 80}` : host
    const { message } = toDeployError(error)
    const evidence = isRefused(error) ? nothingListens(address) : adviseOnService(message)
    return { healthy: false, evidence }
  }
}

/** Replaces the advice for a hub, which does not fit a service. */
function adviseOnService(message: string): string {
  return message
    .replace(CONNECTION_ADVICE, PROBE_ADVICE)
    .replace(ANSWER_ADVICE, PROBE_ADVICE)
    .replace(ISSUER_ADVICE, 'Check the certificate of the service.')
}

/** True if the connection was refused at each address that was tried. */
function isRefused(error: unknown): boolean {
  if (error instanceof AggregateError && error.errors.length > 0) return error.errors.every(isRefused)
  if (errnoOf(error) === 'ECONNREFUSED') return true
  return error instanceof Error && error.cause !== undefined && isRefused(error.cause)
}

function nothingListens(address: string): string {
  return `nothing listens on ${address} (ECONNREFUSED): did the service start?`
}

async function probeTcp({ address }: ProbeOf<'tcp'>, { timeoutMs, signal }: Limits): Promise<ProbeResult> {
  const colon = address.lastIndexOf(':')
  const host = address.slice(0, colon).replace(/^\[|\]$/g, '')
  const socket = connect({ host, port: Number(address.slice(colon + 1)), signal })
  const error = await new Promise<Error | undefined>(resolve => {
    socket.setTimeout(timeoutMs, () => resolve(new Error('no connection in time')))
    socket.once('connect', () => resolve(undefined))
    socket.once('error', resolve)
  })
  socket.destroy()
  signal.throwIfAborted()
  if (isRefused(error)) return { healthy: false, evidence: nothingListens(address) }
  return { healthy: error === undefined, evidence: `tcp ${address}: ${error?.message ?? 'connected'}` }
}

async function probeCommand({ command }: ProbeOf<'command'>, context: ProbeContext): Promise<ProbeResult> {
  const { timeoutMs, signal } = context
  const end = await runChild({ command, env: allowedEnvironment(changedVariable(context)), timeoutMs, signal })
  const healthy = end.kind === 'exited' && end.code === 0
  return { healthy, evidence: `${command[0]} ${describeChildEnd(end)}`, brief: `${basename(command[0])} succeeded` }
}

/**
 * How long a supervisor must report a service as running, but at most half of the timeout: a service that crashes while
 * it starts is reported as running at first.
 */
const SUPERVISOR_STABLE_MS = 3000
const DEFAULT_INTERVAL_MS = 1000
/** At least this many intervals fit into a timeout, however long the configured interval is. */
const MIN_PROBES = 4

interface Pace {
  timeoutMs: number
  /** How long a service must be healthy without a break. */
  stableMs: number
  /** The longest time between two probes. */
  intervalMs: number
}

/** Returns the pace of one attempt. */
export function paceOf({ service, check, timeout_seconds }: Healthcheck): Pace {
  const timeoutMs = timeout_seconds * 1000
  const floorMs = service === null ? 0 : Math.min(SUPERVISOR_STABLE_MS, timeoutMs / 2)
  return {
    timeoutMs,
    stableMs: Math.max(floorMs, (check?.stableForSeconds ?? 0) * 1000),
    intervalMs: Math.min(check === null ? DEFAULT_INTERVAL_MS : check.intervalSeconds * 1000, timeoutMs / MIN_PROBES),
  }
}

/** The result of one probe of a service. */
interface Sight {
  healthy: boolean
  /**
   * Facts about the service's current run, always in the same order: a fact that changes shows a new start. A fact that
   * is not known is null.
   */
  run: readonly (string | null)[]
}

interface Streak {
  add(sight: Sight, nowMs: number): void
  /** Returns how long the service has been healthy without a break; undefined if the last probe failed. */
  healthyMs(nowMs: number): number | undefined
  /** The number of new starts that the probes have detected. */
  readonly starts: number
}

/** Measures how long a service has been healthy without a break. A new start is a break, even if every probe passes. */
export function beginStreak(): Streak {
  let healthySince: number | undefined
  let lastRun: Sight['run'] = []
  let starts = 0
  return {
    get starts() {
      return starts
    },
    add({ healthy, run }, nowMs) {
      const isNewRun = run.some((fact, index) => fact !== null && fact !== (lastRun[index] ?? fact))
      if (isNewRun) starts++
      // The other facts of an earlier run say nothing about this run.
      if (isNewRun || lastRun.length === 0) lastRun = run
      else lastRun = lastRun.map((fact, index) => run[index] ?? fact)
      const since = isNewRun ? nowMs : (healthySince ?? nowMs)
      healthySince = healthy ? since : undefined
    },
    healthyMs: nowMs => (healthySince === undefined ? undefined : nowMs - healthySince),
  }
}

/** The check of a healthcheck step for one id. */
export interface Healthcheck {
  readonly id: string
  readonly service: Service | null
  readonly check: HostHealthcheck | null
  readonly timeout_seconds: number
  readonly retries: number
}

/**
 * The check of a restored version, and that version. The version is null if nothing was installed before, or if it is
 * not known.
 */
export interface RestoredCheck extends Healthcheck {
  readonly previous_version: string | null
}

/** A `healthcheck` step of a plan. */
export type HealthcheckStep = Extract<PlanStep, { action: 'healthcheck' }>

/**
 * Returns a step's checks: the check of the step's plugin, or, if the step names none, the checks of all these ids.
 * Equal checks are returned once, and an id with nothing to examine has no check.
 */
export function healthchecksOf(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): Healthcheck[] {
  return uniqueChecks(checksOf(step, config, ids))
}

/** Returns equal checks only once. */
export function uniqueChecks<Check extends Healthcheck>(checks: readonly Check[]): Check[] {
  const keyOf = ({ service, check }: Healthcheck): string => JSON.stringify([service, check])
  return checks.filter((check, at) => checks.findIndex(other => keyOf(other) === keyOf(check)) === at)
}

/** Returns the ids whose service or check a step examines. */
export function examinedBy(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): string[] {
  return checksOf(step, config, ids).map(({ id }) => id)
}

/** Returns the check of a restored part for which no step of a plan says how long the check may take. */
export function checkOfRestored(
  config: HostConfig,
  { id, version }: { readonly id: string; readonly version: string | null },
  service: Service | null,
): RestoredCheck {
  const check = config.plugins.get(id)?.healthcheck ?? null
  const timeout = DEFAULT_HEALTHCHECK_SECONDS + (check?.stableForSeconds ?? 0)
  return { id, service, check, timeout_seconds: timeout, retries: 0, previous_version: version }
}

/** True if a check has a service or a probe to examine. */
export function isExamining({ service, check }: Pick<Healthcheck, 'service' | 'check'>): boolean {
  return service !== null || check !== null
}

function checksOf(step: HealthcheckStep, config: HostConfig, ids: readonly string[]): Healthcheck[] {
  const findService = step.plugin === undefined ? projectServiceOf : serviceOf
  const checks = (step.plugin === undefined ? ids : [step.plugin]).map(id => ({
    id,
    service: findService(config, id) ?? null,
    check: config.plugins.get(id)?.healthcheck ?? null,
    timeout_seconds: step.timeoutSeconds,
    retries: step.retries,
  }))
  return checks.filter(isExamining)
}

/**
 * Replaces `{version}` in the check's `body`, so that an old process that still answers does not pass for a new one.
 */
function expectVersion(healthcheck: Healthcheck, version: string | null): Healthcheck {
  const { check } = healthcheck
  if (check?.probe.type !== 'http' || check.probe.body === undefined) return healthcheck
  const probe = { ...check.probe, body: check.probe.body.replaceAll('{version}', version ?? '') }
  return { ...healthcheck, check: { ...check, probe } }
}
