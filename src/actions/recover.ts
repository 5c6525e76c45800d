import { randomUUID } from 'node:crypto'
import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { z } from 'zod/mini'
import { toDeployError } from '../core/errors.ts'
import { OPERATOR_YAML_LIMITS } from '../core/identifiers.ts'
import { type Log, monotonicMs } from '../core/log.ts'
import { parseHostConfig } from '../core/plan/host-config.ts'
import { cleanForeignText, cleanLogLine } from '../core/text.ts'
import type { SourceFile } from '../core/yaml/problems.ts'
import { endlessGrace } from '../install/files/child-process.ts'
import { isSystemError, toHostError } from '../install/files/errors.ts'
import { lstatIfPresentSync, pathExistsSync } from '../install/files/walk.ts'
import { layoutOf } from '../install/host/layout.ts'
import { requireOwnKinds, UntouchableHostError } from '../install/host/ownership.ts'
import { findUserName, nameUser, otherWriters, quote, walkPath } from '../install/host/permissions.ts'
import { readHostRecord } from '../install/host/record.ts'
import { removeTrash } from '../install/recovery/cleanup.ts'
import { isAnyPending, recoverHost } from '../install/recovery/recover-host.ts'
import type { HostContext } from '../install/reports/host.ts'
import { hostContextOf } from '../install/run/deployment.ts'
import type { ServiceChange } from '../install/services/changes.ts'
import { isOwnUnitStarting, notifyReady, readServiceState } from '../install/services/supervise.ts'
import type { OnFilesRestored } from '../install/transaction/rollback.ts'
import { readRunnerFacts } from '../runner/files.ts'
import { lockTimeoutSchema } from '../runner/host-inputs.ts'
import { leadsIntoRoot, projectRootSchema, readStart } from '../runner/inputs.ts'
import { FLOWS } from './flows.ts'

const EXIT = { inconsistent: 1, usage: 2, locked: 75 } as const
/** The time that a supervisor may need to come up at boot. */
const SUPERVISOR_TIMEOUT_MS = 60_000
const POLL_MS = 500

/**
 * A program for the host itself, to run at boot. Recovers the host after a dead run, and does nothing else. Has no
 * credentials, so the report to the hub waits in the outbox for the next run. Sets the exit code.
 */
export async function recover(): Promise<void> {
  const command = readCommand()
  if (command === undefined) return
  const log = createConsoleLog()
  try {
    process.exitCode = await recoverRoot(command, log)
  } catch (error) {
    if (error instanceof UntouchableHostError && !hasJournal(command)) return await leaveAlone(error, log)
    const known = isSystemError(error) ? toHostError(error, `recovering ${command.projectRoot}`) : toDeployError(error)
    process.stderr.write(`Error: ${known.message}\n`)
    process.exitCode = known.code === 'locked' ? EXIT.locked : EXIT.inconsistent
  }
  // The units that wait for this program may start, unless the host could not be recovered.
  if (process.exitCode !== EXIT.inconsistent) await notifyReady()
  await removeTrash(hostHere(command, log))
}

function readCommand(): RecoverCommand | undefined {
  try {
    const command = parseRecoverCommand(process.argv.slice(2))
    if (command !== 'help') return command
    process.stdout.write(USAGE)
  } catch (error) {
    const { message } = error as Error
    process.stderr.write(`Error: ${cleanForeignText(message, 1000)} (--help lists the options)\n`)
    process.exitCode = EXIT.usage
  }
  return undefined
}

async function recoverRoot(command: RecoverCommand, log: Log) {
  const host = hostHere(command, log)
  const wasPending = isAnyPending(host)
  const recovered = await recoverHost(host, command.lockTimeoutMs)
  // If nothing was recovered, the files are as they were, so the services may start even if the record is damaged.
  if (recovered === undefined) await notifyReady()
  requireReadableRecord(host)
  if (recovered === undefined && !wasPending) sayNothingToRecover(host)
  return recovered?.report.outcome === 'inconsistent' ? EXIT.inconsistent : 0
}

function hasJournal({ projectRoot }: RecoverCommand): boolean {
  return pathExistsSync(layoutOf(projectRoot).journal)
}

/** Only warns about an unsafe host on which there is nothing to recover. */
async function leaveAlone({ message }: UntouchableHostError, log: Log): Promise<void> {
  log.warning(`There is nothing to recover, but a deployment may refuse this host. ${message}`)
  process.exitCode = 0
  await notifyReady()
}

/** Throws DeploymentError `inconsistent` or `host_not_writable` if the next deployment would throw it. */
function requireReadableRecord({ layout }: HostContext): void {
  requireOwnKinds(layout)
  readHostRecord(layout)
}

function sayNothingToRecover({ layout, log }: HostContext): void {
  if (pathExistsSync(layout.own)) log.info(`Nothing to recover in ${layout.root}.`)
  // This is not an error, so that a host can start its services before its first deployment.
  else log.warning(`${layout.root} has no .hub-deploy, so no deployment is recorded there: is the path right?`)
}

function hostHere(address: Omit<RecoverCommand, 'lockTimeoutMs'>, log: Log): HostContext {
  const secrets = { redact: (text: string) => text, know() {}, hide() {} }
  const tools = {
    log,
    secrets,
    runner: readRunnerFacts({}),
    flows: FLOWS,
    deploymentId: randomUUID(),
    grace: endlessGrace(),
  }
  const host = hostContextOf(tools, { ...address, sender: undefined })
  return {
    ...host,
    sharedRoot: { isAllowed: address.allowSharedRoot, option: '--allow-shared-root' },
    recovery: { onFilesRestored: releaseServices },
  }
}

/** While files match no version, no unit that waits for this program may start. */
const releaseServices: OnFilesRestored = async (isVerified, services) => {
  const isBoot = isVerified && (await notifyReady())
  if (await isOwnUnitStarting()) return 'queued'
  if (isBoot) await Promise.all(services.map(awaitSupervisor))
  return 'now'
}

/** Waits for a supervisor that starts at boot, such as a container engine, because it may not answer yet. */
async function awaitSupervisor({ service }: ServiceChange): Promise<void> {
  const deadline = monotonicMs() + SUPERVISOR_TIMEOUT_MS
  for (;;) {
    const { known, missing } = await readServiceState(service)
    if (known || missing || monotonicMs() >= deadline) return
    await setTimeout(POLL_MS)
  }
}

const USAGE = `Usage: node recover.js --project-root DIR [options]

Recovers the host after a power cut, a crash or a kill ended a deployment. If the deployment ended before its commit,
restores the old version and its services, and checks their health. If it ended after its commit, keeps the new version.
Writes the deployment's local report. Deploys nothing.

  --project-root DIR            the directory that contains plugins/, extensions/ and .hub-deploy/
  --host-config FILE            the host config with the services to restart and to check. Only root and this user may be
                                able to write this file and the directories above it, and it must not lie below DIR.
                                Without it, only files are restored, and the services that need a restart are named
  --lock-timeout-seconds N      how long to wait for a deployment that is still running (default: 60)
  --allow-shared-root           accept a project root that other users own or can write to
  --help                        print this

Exit code: 0 if the host is consistent, even if there was nothing to recover or nothing was ever deployed; 1 if the host
could not be recovered, or its record of what is installed is damaged; 2 if the arguments cannot be used, or another user
owns DIR/.hub-deploy; and 75 if a deployment is still running on the host.
`

interface RecoverCommand {
  readonly projectRoot: string
  readonly allowSharedRoot: boolean
  readonly hostConfig: SourceFile | undefined
  readonly lockTimeoutMs: number
}

const OPTIONS = {
  'project-root': { type: 'string' },
  'host-config': { type: 'string' },
  'lock-timeout-seconds': { type: 'string', default: '60' },
  'allow-shared-root': { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
} as const

/** Parses the arguments. Throws an Error that gives the reason if they cannot be used. */
function parseRecoverCommand(args: readonly string[]): RecoverCommand | 'help' {
  const { values } = parseArgs({ args: [...args], options: OPTIONS, strict: true, allowPositionals: false })
  if (values.help) return 'help'
  const root = values['project-root']
  if (root === undefined) throw new Error('--project-root is missing: name the directory that contains plugins/')
  const projectRoot = requireDirectory(parseOption('project-root', projectRootSchema, root))
  requireOwner(projectRoot)
  const config = values['host-config']
  return {
    projectRoot,
    hostConfig: config === undefined ? undefined : readHostConfigFile(resolve(config), projectRoot),
    allowSharedRoot: values['allow-shared-root'],
    lockTimeoutMs: parseOption('lock-timeout-seconds', lockTimeoutSchema, values['lock-timeout-seconds']),
  }
}

/** A log without groups: warnings and errors go to stderr, everything else goes to stdout. */
function createConsoleLog(): Log {
  const line = (text: string): string => `${cleanLogLine(text, Number.POSITIVE_INFINITY)}\n`
  return {
    group: title => void process.stdout.write(line(title)),
    did: text => void process.stdout.write(line(text)),
    end: () => {},
    info: text => void process.stdout.write(line(text)),
    notice: text => void process.stdout.write(line(text)),
    warning: text => void process.stderr.write(line(`Warning: ${text}`)),
    error: text => void process.stderr.write(line(`Error: ${text}`)),
  }
}

function parseOption<Value>(name: string, schema: z.ZodMiniType<Value>, text: string): Value {
  const parsed = z.safeParse(schema, text)
  if (parsed.success) return parsed.data
  throw new Error(`--${name} ${parsed.error.issues[0]?.message ?? 'is not valid'}, but found ${JSON.stringify(text)}`)
}

/**
 * Reads a host config that only root and this user can have written. Throws an Error that gives the reason if somebody
 * else could have written it, or if it cannot be used.
 */
function readHostConfigFile(path: string, projectRoot: string): SourceFile {
  const option = `--host-config ${path}`
  if (leadsIntoRoot(path, projectRoot)) throw new Error(`${option} lies below the project root: keep it elsewhere`)
  const { way, end } = walkPath(path)
  for (const { path: at, stat } of [...way, ...(end === undefined ? [] : [end])]) {
    const isForeign = stat.uid !== 0 && stat.uid !== process.getuid?.()
    const writers = [...(isForeign ? [nameUser(stat.uid)] : []), ...(stat.isSymbolicLink() ? [] : otherWriters(stat))]
    if (writers.length > 0)
      throw new Error(
        `${option} must be where only root and this user can write, but ${at} can be changed by ${writers.join(' and ')}`,
      )
  }
  try {
    const file = { path, text: readStart(path, OPERATOR_YAML_LIMITS.bytes) }
    parseHostConfig(file.text, path)
    return file
  } catch (error) {
    throw new Error(`${option} cannot be used: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/**
 * An absent directory must not pass as "nothing to recover", because that would hide a typo, or a disk that is not
 * mounted.
 */
function requireDirectory(path: string): string {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return path
  throw new Error(`--project-root ${path} is not a directory: correct the path, or mount its disk first`)
}

/**
 * Refuses to work in records of a user other than this one and root. What this user writes there, or takes over with
 * chown, would lock that user's runner out. Records of root are judged as everywhere: a service may have planted a
 * folder of root.
 */
function requireOwner(projectRoot: string): void {
  const { own } = layoutOf(projectRoot)
  const us = process.getuid?.()
  const uid = lstatIfPresentSync(own)?.uid
  if (us === undefined || uid === undefined || uid === 0 || uid === us) return
  const again = [process.execPath, ...process.argv.slice(1)].map(quote).join(' ')
  throw new Error(
    `${quote(own)} belongs to ${nameUser(uid)}, but this program runs as ${nameUser(us)}, so it changed nothing: run this as ${nameUser(uid)} (sudo -u ${findUserName(uid) ?? `'#${uid}'`} ${again}), and name this user in User= of the unit`,
  )
}
