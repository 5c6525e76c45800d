import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

/**
 * Distinguishes a process from every other process that ever had the same pid. A field is null if the system does not
 * provide the value.
 */
export interface ProcessIdentity {
  readonly pid: number
  /** Clock ticks after boot. */
  readonly start_time: string | null
  readonly boot_id: string | null
  /** The id of the operating system's installation, which survives a reboot; null in most containers. */
  readonly machine_id: string | null
  /** Distinguishes processes with the same pid in two containers of one host. */
  readonly pid_namespace: string | null
  readonly hostname: string
}

export function readOwnIdentity(): ProcessIdentity {
  return {
    pid: process.pid,
    start_time: readStartTime(process.pid) ?? null,
    boot_id: orNull(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()),
    machine_id: orNull(readMachineId),
    pid_namespace: orNull(() => readlinkSync('/proc/self/ns/pid')),
    hostname: hostname(),
  }
}

/**
 * True if a process has provably ended: it ran before this machine was last booted, its pid no longer exists, or its
 * pid now belongs to a later process. A process on another machine or under another host name is never provably dead.
 * Nor is a process in another pid namespace that was started since the last boot.
 */
export function isProvablyDead(holder: ProcessIdentity, own: ProcessIdentity): boolean {
  if (holder.hostname !== own.hostname) return false
  if (holder.machine_id !== own.machine_id) return false
  if (holder.boot_id !== own.boot_id) return own.machine_id !== null && holder.boot_id !== null && own.boot_id !== null
  if (holder.pid_namespace !== own.pid_namespace) return false
  if (!pidExists(holder.pid)) return true
  const startTime = readStartTime(holder.pid)
  return holder.start_time !== null && startTime !== undefined && startTime !== holder.start_time
}

/** True if a process with this pid exists now, even if this user may not signal it. */
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

/** Throws if the file is missing, or contains no id yet (`uninitialized`). */
function readMachineId(): string {
  const id = /^[0-9a-f]{32}$/.exec(readFileSync('/etc/machine-id', 'utf8').trim())?.[0]
  if (id === undefined) throw new Error('no machine id')
  return id
}

/**
 * Reads the start time, field 22 of /proc/<pid>/stat. Counts from the end of field 2, which may contain spaces and
 * parentheses. A zombie counts as ended.
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
