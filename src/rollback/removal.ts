import { ConfigError, DeploymentError } from '../core/errors.ts'
import type { HostConfig } from '../core/plan/host-config.ts'
import { pathExistsSync } from '../install/files/walk.ts'
import { directoryIn, installPath, placeName, placeOf } from '../install/host/layout.ts'
import { requireSafeDestination } from '../install/host/ownership.ts'
import { presentRow, versionAtStart } from '../install/host/previous-install.ts'
import { checkHost } from '../install/host/readiness.ts'
import { findInstalled, readInstalled } from '../install/host/record.ts'
import type { InstalledRow } from '../install/host/rows.ts'
import type { RunResult } from '../install/reports/result.ts'
import { type Links, runContract, type Started, type Subject } from '../install/run/contract.ts'
import type { DeploymentTools, TerminalState } from '../install/run/deployment.ts'
import type { Flow } from '../install/run/run.ts'
import type { InstalledPart, InstallOrder, StepContext } from '../install/steps/context.ts'
import { runSteps } from '../install/steps/run-steps.ts'
import type { HostRequest } from '../install/transaction/record.ts'
import { type PartSubject, ROLLBACK_TRANSITIONS, type RollbackState } from './deployment.ts'
import { parseFiles } from './plan.ts'
import { choosePlace } from './target.ts'

/** The operator's request to remove a plugin or service: parsed, and independent of where it was read. */
export interface RemovalRequest extends HostRequest {
  part: PartSubject
  /** The operator's directory of plugins. */
  pluginsDirectory: string | undefined
}

type RunningRemoval = Started<RemovalRequest, RollbackState, Links>

/** What a removal knows of itself. The contracts have no status for one, so no hub gets a report. */
export const REMOVAL: Subject<RemovalRequest> = {
  named: ({ part }) => ({
    contract: 'marketplace',
    kind: part?.kind ?? null,
    slug: null,
    id: part?.id ?? null,
    requested_version: null,
    removed: true,
  }),
  sender: () => undefined,
  isRehearsal: ({ dryRun }) => dryRun,
}

/**
 * Removes a plugin or service: stops the service that the host config names for it, and moves its whole directory, kept
 * paths included, to the snapshots. This is a deployment without a new version, so it takes the same lock, journal, undo
 * and recovery: however the run ends, the host has exactly the version that it had, or none (or the outcome is
 * `inconsistent`). Succeeds without a change if nothing is installed. Never throws for a failed removal: the result
 * contains the error.
 */
export async function removeVersion(request: RemovalRequest, tools: DeploymentTools): Promise<RunResult> {
  const contract = {
    ...REMOVAL,
    transitions: ROLLBACK_TRANSITIONS,
    connect: () => ({ sender: undefined }),
    flow: (removal: RunningRemoval) => new RemovalFlow(removal),
  }
  return await runContract(contract, request, tools)
}

/** The phases of a removal. They have the states of a rollback: the removed version becomes a snapshot. */
class RemovalFlow implements Flow<HostConfig | undefined> {
  readonly #removal: RunningRemoval

  constructor(removal: RunningRemoval) {
    this.#removal = removal
  }

  async check(): Promise<HostConfig | undefined> {
    const { request, tools } = this.#removal
    await findRow(this.#removal)
    return (await parseFiles({ request: { ...request, plan: undefined }, tools })).hostConfig
  }

  async prepare(hostConfig: HostConfig | undefined): Promise<InstallOrder> {
    const removal = this.#removal
    const { log } = removal.tools
    await removal.enter('finding_snapshots')
    const row = await findRow(removal)
    const part = row && requireRemovable(removal, row)
    log.did(part === undefined ? 'nothing is installed' : (row?.version ?? 'an unknown version'))
    for (const state of ['verifying_snapshots', 'loading_plan', 'resolving_sequence'] as const)
      await removal.enter(state)
    const { contract, slug } = row ?? { contract: 'marketplace' as const, slug: removal.request.part.id }
    return {
      steps: [],
      parts: [],
      removals: part === undefined ? [] : [part],
      origin: { contract, slug, project_version: null },
      snapshot: true,
      hostConfig,
      skipped: new Set(),
    }
  }

  async install(context: StepContext): Promise<void> {
    await this.#removal.enter('installing')
    await runSteps(context, async () => {})
    await this.#removal.enter('healthchecking')
  }

  async end(state: TerminalState): Promise<void> {
    await this.#removal.enter(state)
  }
}

/**
 * Returns the row of the part; undefined if nothing is installed. Throws DeploymentError `place_taken` for a part of a
 * project, and for a directory that this action did not install.
 */
async function findRow(removal: RunningRemoval): Promise<InstalledRow | undefined> {
  const { layout, request, record } = removal
  const { part, pluginsDirectory } = request
  const recorded = findInstalled(readInstalled(layout), placeOf(part))
  if (recorded === undefined) {
    refuseForeign(layout, request)
    return undefined
  }
  const { directory } = choosePlace(removal, recorded, pluginsDirectory)
  const row = presentRow(layout, recorded, directory)
  const previous_version = versionAtStart(layout, row)
  await record.update({ slug: row.slug, previous_version, ...directoryIn(placeOf(row)) })
  if (row.contract === 'project') throw ofProject(row)
  if (pluginsDirectory !== undefined) requireDirectory(row, directory)
  return row
}

function refuseForeign(layout: RunningRemoval['layout'], { part, pluginsDirectory }: RemovalRequest): void {
  const place = placeOf({ ...part, ...(part.kind === 'plugin' && pluginsDirectory && { directory: pluginsDirectory }) })
  const path = installPath(layout, place)
  if (!pathExistsSync(path)) return
  throw new DeploymentError(
    'place_taken',
    `${path} was not installed by this action, according to the record of this host (installed.json): nothing was changed. Check kind and id. If nothing needs this directory, remove it by hand.`,
  )
}

function ofProject(row: InstalledRow): DeploymentError {
  return new DeploymentError(
    'place_taken',
    `${placeName(placeOf(row))} belongs to the project ${row.slug}, whose parts are removed only by a version of the project that does not contain them: nothing was changed.`,
  )
}

function requireDirectory(row: InstalledRow, chosen: string): void {
  const { directory } = placeOf(row)
  if (chosen === directory) return
  throw new ConfigError(
    'invalid_input',
    `plugins-directory is ${chosen}, but ${row.id} is installed in ${directory}: nothing was changed. Correct plugins-directory, or leave it out.`,
  )
}

/** Checks that this host can move the part's directory away. A dry run only reads. */
function requireRemovable(removal: RunningRemoval, installed: InstalledRow): InstalledPart {
  const { host, request, tools } = removal
  const part = { ...placeOf(installed), installed }
  for (const accepted of requireSafeDestination(host, part.directory)) tools.log.warning(accepted)
  if (!request.dryRun) checkHost(removal, part)
  return part
}
