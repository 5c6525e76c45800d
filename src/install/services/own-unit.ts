import { readFileSync } from 'node:fs'
import { allowedEnvironment, runChild } from '../files/child-process.ts'

const TIMEOUT_MS = 30_000

/**
 * Reports to systemd that the unit of this process has started (`Type=notify`), so that the units ordered after that
 * unit start now. Returns false if systemd does not wait for such a report.
 */
export async function notifyReady(): Promise<boolean> {
  const socket = process.env['NOTIFY_SOCKET']
  if (socket === undefined) return false
  const env = allowedEnvironment({ NOTIFY_SOCKET: socket })
  await runChild({ command: ['systemd-notify', '--ready'], env, timeoutMs: TIMEOUT_MS, isSilent: true })
  return true
}

/**
 * True if systemd is still starting the unit of this process. In that case, do not wait for a unit that is ordered
 * after it: such a unit starts only once the unit of this process has started, so the wait would never end.
 */
export async function isOwnUnitStarting(): Promise<boolean> {
  const unit = findOwnUnit()
  if (unit === undefined) return false
  const command = ['systemctl', ...unit.scope, 'show', '--property=ActiveState', unit.name] as const
  const end = await runChild({ command: [...command], env: managerEnvironment(), timeoutMs: TIMEOUT_MS })
  return end.kind === 'exited' && end.stdout.trim() === 'ActiveState=activating'
}

/** Finds the unit in the paths of this process's control groups; there may be one group in each hierarchy. */
function findOwnUnit(): { scope: string[]; name: string } | undefined {
  const paths = [...readControlGroups().matchAll(/^(?:0:|\d+:name=systemd):(.*)$/gm)].map(([, path = '']) => path)
  for (const path of paths) {
    const name = path.split('/').findLast(part => part.endsWith('.service'))
    if (name !== undefined) return { scope: /\/user@\d+\.service\/./.test(path) ? ['--user'] : [], name }
  }
  return undefined
}

function readControlGroups(): string {
  try {
    return readFileSync('/proc/self/cgroup', 'utf8')
  } catch {
    return ''
  }
}

function managerEnvironment(): Record<string, string> {
  const runtime = process.env['XDG_RUNTIME_DIR']
  return allowedEnvironment(runtime === undefined ? {} : { XDG_RUNTIME_DIR: runtime })
}
