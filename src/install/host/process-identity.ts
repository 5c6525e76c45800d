import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

/** Distinguishes a process from every other one that ever had its pid. Complete on Linux; elsewhere nulls remain. */
export interface ProcessIdentity {
  pid: number
  /** Clock ticks after boot. */
  start_time: string | null
  boot_id: string | null
  /** Two containers of one host may each have a pid 17. */
  pid_namespace: string | null
  hostname: string
}

export function readOwnIdentity(): ProcessIdentity {
  return {
    pid: process.pid,
    start_time: readStartTime(process.pid) ?? null,
    boot_id: orNull(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    pid_namespace: orNull(() => readlinkSync('/proc/self/ns/pid')),
    hostname: hostname(),
  }
}

/**
 * Whether a process has provably ended: another boot of this host, no such pid, or the pid given to a later process.
 * What runs on another host, or in another pid namespace, is never provably dead.
 */
export function isProvablyDead(holder: ProcessIdentity, own: ProcessIdentity): boolean {
  if (holder.hostname !== own.hostname) return false
  if (holder.boot_id !== null && own.boot_id !== null && holder.boot_id !== own.boot_id) return true
  if (holder.pid_namespace !== own.pid_namespace) return false
  if (!pidExists(holder.pid)) return true
  const startTime = readStartTime(holder.pid)
  return holder.start_time !== null && startTime !== undefined && startTime !== holder.start_time
}

/** Whether any process has this pid now, ours to signal or not. */
export function pidExists(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}

function orNull(read: () => string): string | null {
  try {
    return read()
  } catch {
    return null
  }
}

/**
 * Field 22 of /proc/<pid>/stat, counted from the end of the second, which may contain spaces and parentheses. A zombie
 * counts as gone.
 */
function readStartTime(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    return fields[0] === 'Z' ? 'ended' : fields[19]
  } catch {
    return undefined
  }
}
