import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { firstLineOf } from '../first-line.ts'

const CLI = join(import.meta.dirname, '../../hub/cli.ts')

/** The reference hub in its own process, started as `npm run hub` starts it. */
export interface ServedHub {
  readonly url: string
  readonly child: ChildProcess
  /** The processor time in milliseconds, and the peak memory in MB of 10^6 bytes. Needs Linux. */
  usage(): { cpuMs: number; peakMb: number }
  stop(signal?: NodeJS.Signals): Promise<void>
}

/** Serves a data folder on a free port of 127.0.0.1. Rejects if the hub ends before it listens. */
export async function serveHub(dataDir: string): Promise<ServedHub> {
  const child = spawn(process.execPath, [CLI, '--port', '0', '--data', dataDir], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  const line = await firstLineOf(child)
  return {
    url: line.replace(/^.* /, ''),
    child,
    usage: () => usageOf(child.pid ?? 0),
    async stop(signal = 'SIGTERM') {
      child.kill(signal)
      await exited
    },
  }
}

const TICK_MS = 10

function usageOf(pid: number): { cpuMs: number; peakMb: number } {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const [user, system] = stat.slice(stat.lastIndexOf(')')).split(' ').slice(12, 14).map(Number)
  const [, peakKib] = /^VmHWM:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return { cpuMs: ((user ?? 0) + (system ?? 0)) * TICK_MS, peakMb: (Number(peakKib) * 1024) / 1e6 }
}
