import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import { z } from 'zod/mini'

/** The number that the kernel always gives to the first pid namespace (PROC_PID_INIT_INO). */
const INITIAL_PID_NAMESPACE = 'pid:[4026531836]'

/** Distinguishes a process from every other one that ever had its pid. Complete on Linux; elsewhere nulls remain. */
export const processIdentitySchema = z.lazy(() =>
  z.object({
    pid: z.int().check(z.positive()),
    /** Clock ticks after boot. */
    start_time: z.nullable(z.string()),
    boot_id: z.nullable(z.string()),
    /** The id of the installed system, which stays over a reboot; null in most containers. */
    machine_id: z.nullable(z.string()),
    /** Two containers of one host may each have a pid 17. */
    pid_namespace: z.nullable(z.string()),
    hostname: z.string(),
  }),
)
export type ProcessIdentity = z.infer<typeof processIdentitySchema>

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

/** A process as its lock describes it; older versions of this action did not write the machine. */
export type FormerProcess = Omit<ProcessIdentity, 'machine_id'> & { machine_id?: string | null | undefined }

/**
 * True if a process has provably ended: another boot of this machine, no such pid, or a pid given to a later process. A
 * process that ran on another machine or under another host name, or runs in another pid namespace, is never provably
 * dead.
 */
export function isProvablyDead(holder: FormerProcess, own: ProcessIdentity): boolean {
  if (holder.hostname !== own.hostname) return false
  const isSameBoot = holder.boot_id === own.boot_id
  if (!isSameMachine(holder, own, isSameBoot)) return false
  if (!isSameBoot) return own.machine_id !== null && holder.boot_id !== null && own.boot_id !== null
  if (holder.pid_namespace !== own.pid_namespace) return false
  if (!pidExists(holder.pid)) return true
  const startTime = readStartTime(holder.pid)
  return holder.start_time !== null && startTime !== undefined && startTime !== holder.start_time
}

function isSameMachine(holder: FormerProcess, own: ProcessIdentity, isSameBoot: boolean): boolean {
  return holder.machine_id === undefined ? isSameBoot : holder.machine_id === own.machine_id
}

/** True if a process runs now, as far as this process can see: on the same host, in the same pid namespace. */
export function isSeenRunning(other: ProcessIdentity, own: ProcessIdentity): boolean {
  const isNear = (['boot_id', 'pid_namespace', 'hostname'] as const).every(key => other[key] === own[key])
  return isNear && pidExists(other.pid) && (readStartTime(other.pid) ?? null) === other.start_time
}

/** True if processes of the machine, and of its other containers, cannot tell whether this one has ended. */
export function isInContainer({ pid_namespace }: Pick<ProcessIdentity, 'pid_namespace'>): boolean {
  return pid_namespace !== null && pid_namespace !== INITIAL_PID_NAMESPACE
}

/** True if any process has this pid now, ours to signal or not. */
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

/** Throws if the file is missing or says that there is no id yet (`uninitialized`). */
function readMachineId(): string {
  const id = /^[0-9a-f]{32}$/.exec(readFileSync('/etc/machine-id', 'utf8').trim())?.[0]
  if (id === undefined) throw new Error('no machine id')
  return id
}

/**
 * Reads field 22 of /proc/<pid>/stat, counted from the end of the second, which may contain spaces and parentheses. A
 * zombie counts as ended.
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
