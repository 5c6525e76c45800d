import { connect } from 'node:net'
import { basename } from 'node:path'
import { errnoOf, toDeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { HealthProbe } from '../../core/plan/host-config.ts'
import { CONNECTION_ADVICE } from '../../net/exchange/failures.ts'
import { createWire } from '../../net/wire.ts'
import { allowedEnvironment, runChild } from '../files/child-process.ts'
import { changedVariable } from './environment.ts'
import { describeEnd, type Limits } from './supervise.ts'

const PROBE_ADVICE = 'check the service and its address in the host config.'

/** The maximum number of characters to quote from a page that does not contain the expected body. */
const MAX_MISMATCH_CHARS = 200

type ProbeOf<Type extends HealthProbe['type']> = Extract<HealthProbe, { type: Type }>

/** The result of one probe. */
export interface Finding {
  healthy: boolean
  /** One line: the status, and the beginning of the body or output. */
  evidence: string
  /** The evidence in a few words, without the body or output. Default: the evidence itself. */
  brief?: string
}

export interface ProbeContext extends Limits {
  /** Whether the deployment has changed what the host runs. */
  readonly changed: boolean
}

/** Probes once. A probe that fails is a finding; only an abort of the signal throws. */
export async function runProbe(probe: HealthProbe, limits: ProbeContext): Promise<Finding> {
  switch (probe.type) {
    case 'http':
      return await probeHttp(probe, limits)
    case 'tcp':
      return await probeTcp(probe, limits)
    case 'command':
      return await probeCommand(probe, limits)
  }
}

async function probeHttp(probe: ProbeOf<'http'>, { timeoutMs, signal }: Limits): Promise<Finding> {
  // The operator's own host config names the address, so plain http is the operator's choice.
  const wire = createWire({ allowHttp: true, userAgent: 'hub-deploy', log: () => {}, signal })
  try {
    const { status, decoded, text } = await wire.requestJson({
      method: 'GET',
      url: probe.url,
      headers: { accept: '*/*' },
      retry: 'never',
      timeoutMs,
      followRedirects: false,
    })
    const matches = probe.body === undefined || decoded.includes(probe.body)
    const wanted =
      probe.body === undefined ? '' : `, ${matches ? 'with' : 'without'} \`${cleanForeignText(probe.body, 100)}\``
    // A page without the expected text is quoted only briefly, because the log quotes it again for each attempt.
    const quoted = matches ? text : cleanForeignText(text, MAX_MISMATCH_CHARS)
    const expected = status === probe.status ? '' : ` (expected ${probe.status})`
    const brief = `HTTP ${status}${expected}${wanted}`
    return { healthy: status === probe.status && matches, evidence: `${brief}: ${quoted}`, brief }
  } catch (error) {
    signal.throwIfAborted()
    const { host, port, protocol } = new URL(probe.url)
    const address = port === '' ? `${host}:${protocol === 'https:' ? 443 : 80}` : host
    const { message } = toDeployError(error)
    const evidence = isRefused(error) ? nothingListens(address) : message.replace(CONNECTION_ADVICE, PROBE_ADVICE)
    return { healthy: false, evidence }
  }
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

async function probeTcp({ address }: ProbeOf<'tcp'>, { timeoutMs, signal }: Limits): Promise<Finding> {
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

async function probeCommand({ command }: ProbeOf<'command'>, context: ProbeContext): Promise<Finding> {
  const { timeoutMs, signal } = context
  const end = await runChild({ command, env: allowedEnvironment(changedVariable(context)), timeoutMs, signal })
  const healthy = end.kind === 'exited' && end.code === 0
  return { healthy, evidence: `${command[0]} ${describeEnd(end)}`, brief: `${basename(command[0])} succeeded` }
}
