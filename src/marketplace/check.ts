import { DeploymentError } from '../core/errors.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { TimeSlice } from '../install/files/time-slice.ts'
import { directoryIn, type Place, placePath } from '../install/host/layout.ts'
import { findInstalled, readInstalled } from '../install/host/record.ts'
import { type InstalledRow, isFrom } from '../install/host/rows.ts'
import { requireAtRest } from '../install/recovery/dead-run.ts'
import type { RunResult } from '../install/reports/result.ts'
import { startContract } from '../install/run/contract.ts'
import type { DeploymentTools } from '../install/run/deployment.ts'
import { runUnreported } from '../install/run/dry-run.ts'
import type { HealthcheckStep } from '../install/services/health.ts'
import { startEntry } from '../install/steps/context.ts'
import { type HealthSubject, verifyHealth } from '../install/steps/perform-step.ts'
import { isOnlyAdded } from '../install/trees/drift.ts'
import {
  type ArtifactDeployment,
  CHECK_TRANSITIONS,
  type CheckState,
  type DeployRequest,
  MARKETPLACE,
  noteInstalledVersion,
  originOf,
} from './deployment.ts'
import { announceDefaultPlan, type ReadyArtifactPlan, readyArtifactPlan } from './plan.ts'
import { installedPlace, refuseSecondCopy } from './prepare.ts'

type InstalledCheck = ArtifactDeployment<CheckState>

/**
 * Checks the health of exactly the version and bytes that the request names, if they are installed and intact. Only the
 * plan's `healthcheck` steps run. Asks no hub, and installs, starts, changes and reports nothing. Never throws for a
 * failed check: the result contains the error.
 */
export async function checkInstalled(request: DeployRequest, tools: DeploymentTools): Promise<RunResult> {
  const deployment = startContract({ ...MARKETPLACE, transitions: CHECK_TRANSITIONS }, request, tools)
  return await runUnreported(deployment, {
    name: 'a check',
    doing: `examining ${deployment.layout.root}`,
    fail: async () => await deployment.enter('failed'),
    async run() {
      await check(deployment)
      return undefined
    },
  })
}

async function check(deployment: InstalledCheck): Promise<void> {
  const { request, record, tools } = deployment
  await noteInstalledVersion(deployment)
  const plan = await new TimeSlice(tools.signal).run(readyArtifactPlan(request))
  refuseSecondCopy(deployment, plan)
  const place = installedPlace(deployment, plan.id)
  record.planSteps(plan.steps.filter(isHealthcheck))
  await record.update({ ...directoryIn(place), id: plan.id, version: request.version, version_source: 'requested' })
  await deployment.enter('loading_plan')
  announceDefaultPlan(plan, tools.log)
  const installed = await requireInstalled(deployment, place)
  await record.update({ artifact_sha256: installed.artifact_sha256, previous_version: installed.version })
  await requireIntact(deployment, place, installed)
  await deployment.enter('healthchecking')
  try {
    await runHealthchecks(deployment, plan)
  } finally {
    // The check holds no lock. If another run has replaced the version in the meantime, the result of the check does
    // not count.
    await requireInstalled(deployment, place)
  }
  await deployment.enter('succeeded')
}

async function runHealthchecks(deployment: InstalledCheck, plan: ReadyArtifactPlan): Promise<void> {
  const { record, request, tools } = deployment
  const parts = [{ id: plan.id, version: record.facts.previous_version ?? request.version }]
  const subject: HealthSubject = { ...plan, tools, parts, changed: false }
  const steps = plan.steps.filter(isHealthcheck).filter(({ id }) => !plan.skipped.has(id))
  if (steps.length === 0)
    tools.log.warning('The plan has no healthcheck step that runs on this host: only the files were checked.')
  for (const step of steps) {
    const finish = startEntry(step)
    try {
      const end = await verifyHealth(subject, step)
      await record.addStep(finish(end))
      tools.log.did(end.did)
    } catch (error) {
      await record.addStep(finish({ failed: error instanceof Error ? error.message : String(error) }))
      throw error
    }
  }
}

/** Returns the row of a place if the row matches the request. Throws DeploymentError `not_installed` if it does not. */
async function requireInstalled(deployment: InstalledCheck, place: Place): Promise<InstalledRow> {
  const { host, layout, request, tools } = deployment
  await requireAtRest(host, tools.signal)
  const installed = findInstalled(readInstalled(layout), place)
  const isAsked =
    installed?.artifact_sha256 === request.artifactSha256 &&
    isSameVersion(installed?.version ?? '', request.version) &&
    installed !== undefined &&
    isFrom(installed, originOf(deployment))
  if (!isAsked) throw notIntact(request, `${placePath(place)} is ${describeInstalled(installed)}`)
  return installed
}

async function requireIntact({ drift, request }: InstalledCheck, place: Place, row: InstalledRow): Promise<void> {
  // For a version that was restored from a modified tree, the record has the modified files, not those of the artifact.
  if (row.modified) throw notIntact(request, `files of ${placePath(place)} were changed before they were restored`)
  const found = await drift.of(place)
  if (found === undefined) throw notIntact(request, `the files of ${placePath(place)} could not be compared`)
  if (!isOnlyAdded(found)) throw notIntact(request, `files of ${placePath(place)} are missing or changed`)
}

function describeInstalled(installed: InstalledRow | undefined): string {
  if (installed === undefined) return 'not installed'
  const { slug, version, artifact_sha256: sha256 } = installed
  return `${slug} ${version ?? 'of an unknown version'} (sha256 ${sha256 ?? 'unknown'})`
}

function notIntact({ version, artifactSha256 }: DeployRequest, finding: string): DeploymentError {
  return new DeploymentError(
    'not_installed',
    `This host should have version ${version} (sha256 ${artifactSha256}), intact, but ${finding}: the check changed nothing. Find out why; to install the version, deploy it without check-only.`,
  )
}

function isHealthcheck(step: ReadyArtifactPlan['steps'][number]): step is HealthcheckStep {
  return step.action === 'healthcheck'
}
