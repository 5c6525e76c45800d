import type { HostConfig } from '../../core/plan/host-config.ts'
import { isNamedBy } from '../../core/plan/ready.ts'
import { listNames } from '../../core/text.ts'
import { toHostError } from '../files/errors.ts'
import { isSamePlace, type Layout, nameOf, placeOf } from '../host/layout.ts'
import { pendingIn, readInstalled, recordPending } from '../host/record.ts'
import type { InstalledRow, PendingService } from '../host/rows.ts'
import { type HostContext, readHostConfig } from '../reports/host.ts'
import { restoreServices, type ServiceChange } from '../services/changes.ts'
import { checkOfRestored, findUnhealthy, type RestoredCheck, uniqueChecks } from '../services/health.ts'
import { findNamed, findServiceOf, keyOfService, type NamedService, type Service } from '../services/supervise.ts'
import { isRunBy, type UnreachableService } from '../transaction/rollback.ts'
import { changedPlaces, type DeadRun } from './dead-run.ts'

// A journal may have been written by a process that is allowed to write below the project root, and to do nothing else.
// So it can only make a recovery restart, stop and check services that this run's host config names for a recorded part.
// A template such as `{id}.service` names nothing, because the id would choose among all services of the machine.

/** The services that a dead run acted on. */
export interface FoundServices {
  readonly services: readonly ServiceChange[]
  readonly unreachable: readonly UnreachableService[]
}

/** Finds the services that a dead run acted on in the host config of this run. */
export function findServices(host: HostContext, run: DeadRun): FoundServices {
  const config = readHostConfig(host)
  const rows = tryToReadInstalled(host.layout)
  const services: ServiceChange[] = []
  const unreachable = new Map<string | null, UnreachableService>()
  for (const entry of run.records) {
    if (entry.record !== 'service') continue
    const { part, was_running } = entry
    const found = typeof config === 'string' ? config : (whyNot(run, rows, entry) ?? findOperators(host, config, part))
    if (typeof found !== 'string') services.push({ service: found, part, was_running, replicas: null })
    else if (!unreachable.has(part)) unreachable.set(part, { part, was_running, why: found })
  }
  return { services, unreachable: [...unreachable.values()] }
}

/**
 * Returns why a recovery must not act on a service: no row has the service's part, and the run moved no tree into the
 * part's place. A first install has no row, but may replace a tree that somebody else installed and whose service runs.
 */
function whyNot(
  run: DeadRun,
  rows: readonly InstalledRow[],
  { part }: Pick<ServiceChange, 'part'>,
): string | undefined {
  if (rows.some(row => isRunBy(row, part, run.record.facts))) return undefined
  const places = changedPlaces(run.records)
  if (part === null ? places.length > 0 : places.some(({ id }) => id === part)) return undefined
  return part === null ? 'no part of the project is installed' : `${part} is not installed`
}

/** Returns the service that the operator means by a name in a state file, or why there is none. */
function findOperators(host: HostContext, config: HostConfig, part: string | null): Service | string {
  if (part !== null && !isNamed(host, config, part))
    return 'the host config has no row for it below plugins, and its template for names allows any service'
  return findNamed(config, part) ?? 'the host config has no such service'
}

/** True if the host config names the service of this id, or if this run's own inputs name the id. */
function isNamed({ ids }: HostContext, config: HostConfig, id: string): boolean {
  return isNamedBy(config, id) || ids?.().includes(id) === true
}

/** Guesses the service of a part for which a state file names none. */
async function guessService(host: HostContext, config: HostConfig, id: string): Promise<NamedService | undefined> {
  return isNamed(host, config, id) ? await findServiceOf(config, id, { signal: host.grace.restoring }) : undefined
}

/**
 * Returns the health checks of the parts that a dead run changed, or whose services it acted on and that ran before.
 */
export async function checksAfter(
  host: HostContext,
  run: DeadRun,
  { services, unreachable }: FoundServices,
): Promise<RestoredCheck[]> {
  const config = readHostConfig(host)
  if (typeof config === 'string') return []
  const places = changedPlaces(run.records)
  const checks: RestoredCheck[] = []
  for (const row of tryToReadInstalled(host.layout)) {
    const runs = ({ part }: Pick<ServiceChange, 'part'>): boolean => isRunBy(row, part, run.record.facts)
    const own = services.filter(runs)
    const isChanged = places.some(place => isSamePlace(place, placeOf(row)))
    if (unreachable.some(runs) || own.some(change => !change.was_running) || (own.length === 0 && !isChanged)) continue
    const found = own.length > 0 ? own : [await guessService(host, config, row.id)]
    for (const named of found) checks.push(checkOfRestored(config, row, named?.service ?? null))
  }
  return uniqueChecks(checks)
}

/** Returns the rows of the parts whose service an earlier rollback or recovery left pending. */
export function findPending(layout: Layout): readonly InstalledRow[] {
  return tryToReadInstalled(layout).filter(row => row.service_pending === true)
}

/**
 * Restarts and checks services that are pending, as far as the host config of this run names services for these parts.
 * A service that was restarted and checked is no longer pending, whatever the check has found. Never throws: logs a
 * warning for anything that later runs have to repeat, and stops after a cancel.
 */
export async function restorePending(host: HostContext, pending: readonly InstalledRow[]): Promise<void> {
  try {
    await restoreAll(host, pending)
  } catch (error) {
    if (host.grace.cancelled.aborted) return
    const { message } = toHostError(error, 'restarting and checking services')
    host.log.warning(`Services that an earlier run left are still pending; later runs try again: ${message}`)
  }
}

async function restoreAll(host: HostContext, pending: readonly InstalledRow[]): Promise<void> {
  const { layout, log, grace, recovery } = host
  const config = readHostConfig(host)
  if (typeof config === 'string' || pending.length === 0) return
  const groups = await groupByService(host, config, pending)
  const left = pending.filter(row => !groups.some(({ rows }) => rows.includes(row))).map(({ id }) => id)
  if (left.length > 0)
    log.warning(
      `The service of ${listNames(left)} still has to be restarted and checked, but this host config names no service for it.`,
    )
  if (groups.length === 0) return
  log.group('Restarting services that an earlier run left', 'at once')
  const starts =
    (await recovery?.onFilesRestored?.(
      true,
      groups.map(({ change }) => change),
    )) ?? 'now'
  for (const { change, rows } of groups) {
    const { problems } = await restoreServices([change], { log, signal: grace.restoring, starts })
    for (const problem of problems) log.warning(problem)
    if (problems.length > 0 || starts === 'queued') continue
    const checks = change.was_running ? rows.map(row => checkOfRestored(config, row, change.service)) : []
    const found = await findUnhealthy(uniqueChecks(checks), { log, signal: grace.cancelled })
    for (const finding of found.problems) log.warning(finding)
    const done = new Set(rows.map(nameOf))
    await recordPending(layout, row => {
      const left = pendingIn(row)
      if (!done.has(nameOf(row))) return left
      return left === true ? [] : left.filter(({ part }) => part !== change.part)
    })
  }
}

/** A service, and the pending rows of the parts that it runs. */
interface PendingGroup {
  readonly change: ServiceChange
  readonly rows: InstalledRow[]
}

async function groupByService(
  host: HostContext,
  config: HostConfig,
  pending: readonly InstalledRow[],
): Promise<readonly PendingGroup[]> {
  const groups = new Map<string, PendingGroup>()
  for (const row of pending) {
    const pending = pendingIn(row)
    const guessed = pending === true ? await guessService(host, config, row.id) : undefined
    const named =
      pending === true ? guessed && [{ ...guessed, was_running: true }] : pending.flatMap(inConfig(host, config, row))
    for (const service of named ?? []) {
      const key = keyOfService(service.service)
      const group = groups.get(key) ?? { change: { ...service, replicas: null }, rows: [] }
      group.rows.push(row)
      groups.set(key, group)
    }
  }
  return [...groups.values()]
}

/** A row's own service, or the project-wide unit; whatever else a row names, no run of this action has written it. */
function inConfig(host: HostContext, config: HostConfig, { id }: InstalledRow) {
  return ({ part, was_running }: PendingService) => {
    const service = part === null || part === id ? findOperators(host, config, part) : ''
    return typeof service === 'string' ? [] : [{ service, part, was_running }]
  }
}

/** Returns no rows if the record cannot be read: whatever needs the record reports that. */
function tryToReadInstalled(layout: Layout): readonly InstalledRow[] {
  try {
    return readInstalled(layout)
  } catch {
    return []
  }
}
