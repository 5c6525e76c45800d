import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import type { HostCopy } from './host-copy.ts'
import { describeCall, ONE_WORKER, readTrace, type SystemCall, type Tracing, traceCommand } from './strace.ts'
import type { SweepHost } from './sweep-hosts.ts'

/** One phase of an action on a host. */
export type Act<Host extends HostCopy = SweepHost> = (host: Host, run: Partial<ActionRun>) => Promise<ActionResult>

export interface TracedCall extends SystemCall {
  /** The call without the texts that differ from run to run. */
  text: string
}

export interface Traces<Host extends HostCopy = SweepHost> {
  run(
    host: Host,
    act: Act<Host>,
    tracing?: Omit<Tracing, 'log'>,
    env?: Record<string, string>,
  ): Promise<{ result: ActionResult; calls: readonly TracedCall[] }>
  close(): void
}

/** Runs actions under strace, with all asynchronous file work in one thread. `close` removes the trace logs. */
export function openTraces<Host extends HostCopy = SweepHost>(): Traces<Host> {
  const folder = mkdtempSync(join(tmpdir(), 'traces-'))
  return {
    async run(host, act, tracing = {}, env = {}) {
      const log = join(folder, host.name)
      const result = await act(host, { through: traceCommand({ log, ...tracing }), env: { ...ONE_WORKER, ...env } })
      const folders = { host: host.root, temp: host.workspace.temp }
      const calls = readTrace(log).map(call => ({ ...call, text: describeCall(call, folders) }))
      return { result, calls: calls.filter(({ name }) => name !== 'execve') }
    },
    close: () => rmSync(folder, { recursive: true, force: true }),
  }
}
