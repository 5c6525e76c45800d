import { connect } from 'node:net'
import { toDeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { HealthProbe } from '../../core/plan/host-config.ts'
import { createWire } from '../../net/wire.ts'
import { allowedEnvironment, runChild } from '../files/child-process.ts'
import { changedVariable } from './environment.ts'
import { describeEnd, type Limits } from './supervise.ts'

type ProbeOf<Type extends HealthProbe['type']> = Extract<HealthProbe, { type: Type }>

/** The result of one probe. */
export interface Finding {
  healthy: boolean
  /** One line: status, first of the body or output. */
  evidence: string
}

/** What a probe works with. */
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
      probe.body === undefined ? '' : `, ${matches ? 'with' : 'without'} "${cleanForeignText(probe.body, 100)}"`
    return { healthy: status === probe.status && matches, evidence: `HTTP ${status}${wanted}: ${text}` }
  } catch (error) {
    signal.throwIfAborted()
    return { healthy: false, evidence: toDeployError(error).message }
  }
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
  return { healthy: error === undefined, evidence: `tcp ${address}: ${error?.message ?? 'connected'}` }
}

async function probeCommand({ command }: ProbeOf<'command'>, context: ProbeContext): Promise<Finding> {
  const { timeoutMs, signal } = context
  const end = await runChild({ command, env: allowedEnvironment(changedVariable(context)), timeoutMs, signal })
  return { healthy: end.kind === 'exited' && end.code === 0, evidence: `${command[0]} ${describeEnd(end)}` }
}
