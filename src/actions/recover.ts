import { randomUUID } from 'node:crypto'
import { setTimeout } from 'node:timers/promises'
import { toDeployError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { Log } from '../core/log.ts'
import { monotonicMs } from '../core/monotonic.ts'
import { hostOf } from '../install/deployment/deployment.ts'
import { isAnyPending, recoverHost } from '../install/deployment/recovery/recover-host.ts'
import { endlessGrace } from '../install/files/grace.ts'
import { isSystemError, toHostError } from '../install/files/system-errors.ts'
import { pathExistsSync } from '../install/files/trees/tree-walk.ts'
import { readHostRecord } from '../install/host/installed/host-record.ts'
import { layoutOf } from '../install/host/layout.ts'
import { requireOwnKinds } from '../install/host/ownership/own-kinds.ts'
import { UntouchableHostError } from '../install/host/ownership/untouchable-host.ts'
import type { Host } from '../install/reports/host.ts'
import { isOwnUnitStarting, notifyReady } from '../install/services/own-unit.ts'
import type { ServiceChange } from '../install/services/service-changes.ts'
import { readServiceState } from '../install/services/supervise.ts'
import type { FilesRestored } from '../install/transaction/rollback.ts'
import { readRunnerFacts } from '../runner/environment.ts'
import { createConsoleLog, parseRecoverCommand, type RecoverCommand, USAGE } from '../runner/recover-command.ts'
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

async function recoverRoot({ lockTimeoutMs, ...address }: RecoverCommand, log: Log) {
  const host = hostHere(address, log)
  const wasPending = isAnyPending(host)
  const recovered = await recoverHost(host, lockTimeoutMs)
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
function requireReadableRecord({ layout }: Host): void {
  requireOwnKinds(layout)
  readHostRecord(layout)
}

function sayNothingToRecover({ layout, log }: Host): void {
  if (pathExistsSync(layout.own)) log.info(`Nothing to recover in ${layout.root}.`)
  // This is not an error, so that a host can start its services before its first deployment.
  else log.warning(`${layout.root} has no .hub-deploy, so no deployment is recorded there: is the path right?`)
}

function hostHere(address: Omit<RecoverCommand, 'lockTimeoutMs'>, log: Log): Host {
  const secrets = { redact: (text: string) => text, know() {}, hide() {} }
  const tools = {
    log,
    secrets,
    runner: readRunnerFacts({}),
    flows: FLOWS,
    deploymentId: randomUUID(),
    grace: endlessGrace(),
  }
  const host = hostOf(tools, { ...address, sender: undefined })
  return {
    ...host,
    sharedRoot: { isAllowed: address.allowSharedRoot, option: '--allow-shared-root' },
    recovery: { onFilesRestored: releaseServices },
  }
}

/** While files match no version, no unit that waits for this program may start. */
const releaseServices: FilesRestored = async (isVerified, services) => {
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
