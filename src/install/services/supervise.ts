import { DeploymentError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { HostConfig } from '../../core/plan/host-config.ts'
import { type ChildEnd, runChild } from '../files/child-process.ts'
import {
  actionCommand,
  forgetStartsCommand,
  type ParsedState,
  parseRestarts,
  parseState,
  restartsCommand,
  runCommand,
  type ServiceOrder,
  saysMissing,
  stateCommand,
} from './commands.ts'
import { supervisorEnvironment } from './environment.ts'
import { describeService, findNamed, type NamedService, type Service, serviceOf } from './service.ts'

const ACTION_TIMEOUT_MS = 5 * 60_000
const STATE_TIMEOUT_MS = 30_000

/** The limits that end a command or a probe early. */
export interface Limits {
  timeoutMs: number
  signal: AbortSignal
  /** See `runChild`. */
  abortGraceMs?: number
}

export interface ServiceState extends ParsedState {
  /** The supervisor answered that it has no service of this name. */
  missing: boolean
  /** The supervisor's answer, in one line. */
  evidence: string
}

/**
 * Has the supervisor start, stop or restart a service, within 5 minutes unless `limits` says otherwise.
 * Throws DeploymentError `step_failed` with the supervisor's output, or `step_timed_out`.
 */
export async function superviseService(order: ServiceOrder, limits: Partial<Limits> = {}): Promise<void> {
  const { service, action } = order
  const command = actionCommand(order)
  const env = supervisorEnvironment(service)
  const end = await runChild({ command, env, timeoutMs: ACTION_TIMEOUT_MS, ...limits })
  if (end.kind === 'exited' && end.code === 0) return
  throw new DeploymentError(
    end.kind === 'timed_out' ? 'step_timed_out' : 'step_failed',
    `Could not ${action} ${describeService(service)}: ${command.join(' ')} ${describeEnd(end)}. Check the service on this host.`,
  )
}

/**
 * Asks the supervisor about a service. If the supervisor gives no usable answer, the state is unknown and the evidence
 * says why.
 */
export async function readServiceState(service: Service, limits: Partial<Limits> = {}): Promise<ServiceState> {
  const command = stateCommand(service)
  const env = supervisorEnvironment(service)
  const end = await runChild({ command, env, timeoutMs: STATE_TIMEOUT_MS, ...limits })
  const state = end.kind === 'exited' ? parseState(service, end) : UNKNOWN
  const missing = end.kind === 'exited' && end.code !== 0 && saysMissing(service, end.output)
  const answer = state.known ? ` ${state.words}` : `: ${command[0]} ${describeEnd(end)}`
  return { ...state, missing, evidence: `${describeService(service)}${answer}` }
}

/**
 * Finds the service that runs a part for which no plan names one. It has the name in the part's row of the host config,
 * or else the usual name. If no row names the service, and no service with the usual name exists (with systemd: runs),
 * the project-wide unit runs the part. Returns undefined if there is no project-wide unit and no row of the part either.
 */
export async function findServiceOf(
  config: HostConfig,
  id: string,
  limits: Partial<Limits> = {},
): Promise<NamedService | undefined> {
  const row = config.plugins.get(id)
  const service = serviceOf(config, id)
  if (service === undefined) return undefined
  const own = { service, part: id }
  if ((row?.unit ?? row?.container ?? row?.deployment) !== undefined) return own
  if (!isAbsent(service, await readServiceState(service, limits))) return own
  const projectWide = findNamed(config, null)
  if (projectWide !== undefined) return { service: projectWide, part: null }
  return row === undefined ? undefined : own
}

/** systemd reports a unit that does not exist in the same way as a stopped one. */
function isAbsent({ supervisor }: Service, { missing, words }: ServiceState): boolean {
  return missing || (supervisor === 'systemd' && /^is (?:inactive|unknown) /.test(words))
}

/** Returns the answer to `runCommand`, by which a new start is recognized, or null if the supervisor gives none. */
export async function readServiceRun(service: Service, limits: Partial<Limits> = {}): Promise<string | null> {
  return await ask(service, runCommand(service), limits)
}

/**
 * Returns how many times containers of a Kubernetes deployment were restarted within their pods: such a restart may be
 * too brief to make the deployment unavailable. Returns null for other supervisors, or if the number is not known.
 */
export async function readRestarts(
  service: Service,
  { labels }: ParsedState,
  limits: Partial<Limits> = {},
): Promise<number | null> {
  if (service.supervisor !== 'kubernetes' || labels === null) return null
  const answer = await ask(service, restartsCommand(service, labels), limits)
  return answer === null ? null : parseRestarts(answer)
}

async function ask(service: Service, command: [string, ...string[]], limits: Partial<Limits>): Promise<string | null> {
  const env = supervisorEnvironment(service)
  const end = await runChild({ command, env, timeoutMs: STATE_TIMEOUT_MS, ...limits })
  return end.kind === 'exited' && end.code === 0 ? end.stdout.trim() || null : null
}

/** Makes the supervisor forget earlier starts, so that its start limit does not refuse the next one. */
export async function forgetStarts(service: Service, limits: Partial<Limits> = {}): Promise<void> {
  const command = forgetStartsCommand(service)
  if (command === undefined) return
  await runChild({ command, env: supervisorEnvironment(service), timeoutMs: STATE_TIMEOUT_MS, ...limits })
}

const UNKNOWN: ParsedState = { known: false, up: false, running: false, replicas: null, labels: null, words: '' }

/** Describes the end of a child as a predicate whose subject is the program. */
export function describeEnd(end: ChildEnd): string {
  switch (end.kind) {
    case 'exited':
      return `returned exit code ${end.code}${describeOutput(end.output)}`
    case 'signalled':
      return `was killed by ${end.signal}${describeOutput(end.output)}`
    case 'timed_out':
      return `did not finish in time${describeOutput(end.output)}`
    case 'not_started':
      return `could not be started (${cleanForeignText(end.error.message)})`
  }
}

function describeOutput(output: string): string {
  const text = cleanForeignText(output, 2048)
  return text === '' ? ' and printed nothing' : ` and printed "${text}"`
}
