import { DeploymentError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import { type ChildEnd, runChild } from '../files/child-process.ts'
import {
  actionCommand,
  forgetStartsCommand,
  type ParsedState,
  parseState,
  runCommand,
  type ServiceAction,
  saysMissing,
  stateCommand,
} from './commands.ts'
import { supervisorEnvironment } from './environment.ts'
import { describeService, type Service } from './service.ts'

const ACTION_TIMEOUT_MS = 5 * 60_000
const STATE_TIMEOUT_MS = 30_000

export interface Supervision {
  /** How many a start makes of a Kubernetes deployment. */
  replicas: number | null
  signal?: AbortSignal | undefined
  /** Default 5 minutes. */
  timeoutMs?: number
}

export interface ServiceState extends ParsedState {
  /** The supervisor answered that it has nothing of this name. */
  missing: boolean
  /** What the supervisor said, one line. */
  evidence: string
}

/**
 * Has the supervisor start, stop or restart a service. Throws DeploymentError `step_failed` with what it said, or
 * `step_timed_out`.
 */
export async function superviseService(
  service: Service,
  action: ServiceAction,
  { replicas, signal, timeoutMs = ACTION_TIMEOUT_MS }: Supervision,
): Promise<void> {
  const command = actionCommand(service, action, replicas)
  const end = await runChild({ command, env: supervisorEnvironment(service), timeoutMs, signal })
  if (end.kind === 'exited' && end.code === 0) return
  const code = end.kind === 'timed_out' ? 'step_timed_out' : 'step_failed'
  throw new DeploymentError(
    code,
    `To ${action} ${describeService(service)}, ${command.join(' ')} ${describeEnd(end)}: look at the service on this host.`,
  )
}

/** What the supervisor says of a service. Where it cannot be asked, nothing is known, and the evidence says why. */
export async function readServiceState(
  service: Service,
  signal?: AbortSignal,
  timeoutMs: number = STATE_TIMEOUT_MS,
): Promise<ServiceState> {
  const command = stateCommand(service)
  const end = await runChild({ command, env: supervisorEnvironment(service), timeoutMs, signal })
  const state = end.kind === 'exited' ? parseState(service, end.code, end.stdout) : UNKNOWN
  const missing = end.kind === 'exited' && end.code !== 0 && saysMissing(service, end.output)
  return { ...state, missing, evidence: `${describeService(service)}: ${command[0]} ${describeEnd(end)}` }
}

/** What is another text after each start of a service. Null where that cannot be told. */
export async function readServiceRun(
  service: Service,
  signal?: AbortSignal,
  timeoutMs: number = STATE_TIMEOUT_MS,
): Promise<string | null> {
  const end = await runChild({ command: runCommand(service), env: supervisorEnvironment(service), timeoutMs, signal })
  return end.kind === 'exited' && end.code === 0 ? end.stdout.trim() || null : null
}

/** Has the supervisor forget earlier starts, so that it does not refuse the next for being one too many. Never fails. */
export async function forgetStarts(service: Service): Promise<void> {
  const command = forgetStartsCommand(service)
  if (command === undefined) return
  await runChild({ command, env: supervisorEnvironment(service), timeoutMs: STATE_TIMEOUT_MS })
}

const UNKNOWN: ParsedState = { known: false, up: false, running: false, replicas: null }

/** How a child ended, for a message. */
export function describeEnd(end: ChildEnd): string {
  switch (end.kind) {
    case 'exited':
      return `ended with exit code ${end.code}${said(end.output)}`
    case 'signalled':
      return `was ended by ${end.signal}${said(end.output)}`
    case 'timed_out':
      return `did not end in time${said(end.output)}`
    case 'not_started':
      return `could not be started (${cleanForeignText(end.error.message)})`
  }
}

function said(output: string): string {
  const text = cleanForeignText(output, 2048)
  return text === '' ? ' and said nothing' : ` and said "${text}"`
}
