import { connect } from 'node:net'
import { toDeployError } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/foreign-text.ts'
import type { HealthProbe } from '../../core/plan/host-config.ts'
import { createWire } from '../../net/wire.ts'
import { allowedEnvironment, runChild } from '../files/child-process.ts'
import { describeEnd } from './supervise.ts'

/** What one look at a service found. */
export interface Finding {
  healthy: boolean
  /** One line: status, first of the body or output. */
  evidence: string
}

/** Looks once, within `timeoutMs`. A probe that fails is a finding; only an abort of `signal` throws. */
export async function runProbe(probe: HealthProbe, timeoutMs: number, signal: AbortSignal): Promise<Finding> {
  switch (probe.type) {
    case 'http':
      return probeHttp(probe, timeoutMs, signal)
    case 'tcp':
      return probeTcp(probe.address, timeoutMs, signal)
    case 'command':
      return probeCommand(probe.command, timeoutMs, signal)
  }
}

async function probeHttp(
  probe: Extract<HealthProbe, { type: 'http' }>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Finding> {
  // The operator's own host config names the address, so plain http is his to choose.
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

async function probeTcp(address: string, timeoutMs: number, signal: AbortSignal): Promise<Finding> {
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

async function probeCommand(
  command: Extract<HealthProbe, { type: 'command' }>['command'],
  timeoutMs: number,
  signal: AbortSignal,
): Promise<Finding> {
  const end = await runChild({ command, env: allowedEnvironment(), timeoutMs, signal })
  return { healthy: end.kind === 'exited' && end.code === 0, evidence: `${command[0]} ${describeEnd(end)}` }
}
