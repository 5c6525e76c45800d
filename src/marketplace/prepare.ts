import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import type { VerifiedArtifact } from '../core/trust/signature.ts'
import { refuseDowngrade, refuseReusedVersion, replacedBytes } from '../core/trust/version-rules.ts'
import { isSameVersion } from '../core/trust/versions.ts'
import { pathTest } from '../install/files/trees/extracted-tree.ts'
import { directoryIn } from '../install/host/installed/row-place.ts'
import { installPath, isSamePlace, type Place, placePath } from '../install/host/layout.ts'
import {
  factsOfReplaced,
  type PreviousInstall,
  readPreviousInstall,
  stateFor,
  verifyPlace,
  versionsFrom,
} from '../install/host/previous-install.ts'
import { checkPlaces } from '../install/host/readiness.ts'
import { verifyDestination } from '../install/host/relocation.ts'
import { signForHost } from '../install/host/sign-for-host.ts'
import { presentVersion, wasReplaced } from '../install/reports/replaced-artifact.ts'
import { findIntactTree, hasRegularFile, type IntactTree, keepIfIntact } from '../install/steps/parts/intact-part.ts'
import { environmentOf, type Part, type PartTree } from '../install/steps/parts/part.ts'
import type { InstallOrder } from '../install/steps/step-context.ts'
import { type StagedTree, unpackArtifact, verifyServed } from './artifact-checks.ts'
import { announceDefaultPlan } from './default-plan.ts'
import { type ArtifactDeployment, originOf } from './deployment.ts'
import { noticeOtherVersion, type ServedVersion } from './fetch.ts'
import { choosePlace } from './place.ts'
import { bindToFiles, type ReadyArtifactPlan } from './plan.ts'
import { refuseSecondCopy, warnOfSecondCopy } from './second-copy.ts'
import { claimedVersion, decideVersion } from './version.ts'

/** An artifact's plan and place, and the version that the artifact replaces. */
export interface Target {
  readonly plan: ReadyArtifactPlan
  /** The place that the artifact will have. */
  readonly place: Place
  readonly previous: PreviousInstall
}

/** A fetched artifact with a valid signature and, if a digest is pinned, that digest. */
export interface VerifiedVersion extends ServedVersion {
  readonly verified: VerifiedArtifact
}

/** A verified artifact that may replace the installed version. */
export interface AcceptedVersion extends VerifiedVersion {
  readonly target: Target
}

/** An accepted artifact whose files are known, with its actual version. */
export interface ExtractedVersion extends AcceptedVersion {
  /** Freshly extracted, or installed already. */
  readonly content: StagedTree | IntactTree
  /** Undefined for a service. */
  readonly pluginYaml: PluginYaml | undefined
  readonly version: string
}

/**
 * Reads what the deployment replaces, and checks that this host can replace it. A dry run only reads. Throws
 * DeploymentError `place_taken`, `host_not_writable`, `unsafe_host`, `disk_full` or `inconsistent`, or ConfigError
 * `missing_input`.
 */
export async function findTarget(deployment: ArtifactDeployment, plan: ReadyArtifactPlan): Promise<Target> {
  const { layout, request, record, tools } = deployment
  refuseSecondCopy(deployment, plan)
  warnOfSecondCopy(deployment, plan)
  const { place, chosenBy } = choosePlace(deployment, plan)
  const previous = readPreviousInstall(layout, place)
  await record.update({
    previous_version: previous.version,
    ...directoryIn(place),
    ...factsOfReplaced(layout, previous, tools.log),
  })
  const { allowTakeover } = request
  const origin = originOf(deployment)
  verifyPlace(previous, { origin, allowTakeover, chosenBy: 'operator' }, tools.log)
  await verifyDestination(deployment, { target: place, previous, chosenBy, allowTakeover, origin })
  if (!request.dryRun) checkPlaces(deployment, previous.place, place)
  return { plan, place, previous }
}

/**
 * Vouches for the artifact as `verifyServed` does, and records its digest, size and repository even if it is refused.
 */
export async function verifyArtifact(deployment: ArtifactDeployment, found: ServedVersion): Promise<VerifiedVersion> {
  const { artifact, repo } = found.served
  await deployment.record.update({
    artifact_sha256: artifact.sha256,
    artifact_size: artifact.size,
    repo: repo ?? null,
  })
  const verified = verifyServed(deployment, found.served)
  await deployment.record.update({ signature_valid: true })
  return { ...found, verified }
}

/**
 * Judges a version by the request or the hub's header before the artifact is extracted. Refuses a version that had
 * different bytes on this host. Refuses a `latest` that is older than the installed version, that cannot be compared
 * with it, or whose bytes this host has replaced. The operator can accept each of these. Throws ArtifactError
 * `version_reused` or DeploymentError `downgrade_refused`.
 */
export function acceptVersion(deployment: ArtifactDeployment, fetched: AcceptedVersion): AcceptedVersion {
  const claimed = claimedVersion(fetched)
  if (claimed !== undefined) refuseVersion(deployment, fetched, claimed)
  refuseOldBytes(deployment, fetched.verified.sha256)
  return fetched
}

/** Refuses a `latest` with bytes that this host has replaced: the unsigned header may give old bytes a new version. */
function refuseOldBytes({ request, layout, record: { facts } }: ArtifactDeployment, sha256: string): void {
  if (request.version !== 'latest' || request.allowDowngrade) return
  const origin = { contract: 'marketplace' as const, slug: request.slug }
  if (wasReplaced(layout, { origin, sha256 }))
    throw replacedBytes({ version: facts.version, sha256 }, presentVersion(layout, origin))
}

/**
 * Determines the artifact's version, and extracts the artifact into `folder` unless the same bytes are installed and
 * intact. Throws ArtifactError `version_reused` or DeploymentError `downgrade_refused`. Also throws as `unpackArtifact`
 * and `decideVersion` do.
 */
export async function extractArtifact(
  deployment: ArtifactDeployment,
  accepted: AcceptedVersion,
  folder: string,
): Promise<ExtractedVersion> {
  const installed = await findSameVersion(deployment, accepted)
  if (installed !== undefined) return installed
  const { staged, tree, pluginYaml } = await unpackArtifact(deployment, accepted.verified, folder)
  const version = await checkVersion(deployment, accepted, pluginYaml)
  return { ...accepted, content: { staged, tree }, pluginYaml, version }
}

/**
 * Returns the installed files, in place of the artifact's, if they are intact and came from the same bytes and version.
 */
async function findSameVersion(
  deployment: ArtifactDeployment,
  fetched: AcceptedVersion,
): Promise<ExtractedVersion | undefined> {
  const { target, verified } = fetched
  const source = { origin: originOf(deployment), sha256: verified.sha256 }
  if (!isSamePlace(target.place, target.previous.place)) return undefined
  const installed = await findIntactTree(deployment, target.previous, source)
  if (installed === undefined) return undefined
  const { pluginYaml } = installed
  if (deployment.request.kind === 'plugin' && pluginYaml === undefined) return undefined
  if (!isInstalledVersion(target, decideVersion(fetched, pluginYaml).version)) return undefined
  const version = await checkVersion(deployment, fetched, pluginYaml)
  const name = placePath(target.place)
  deployment.tools.log.did(`not extracted: ${name} came from these bytes, and none of its files is missing or changed`)
  return { ...fetched, content: installed, pluginYaml, version }
}

/** The same bytes of a service may be served as another version, because a service's version comes from a header. */
function isInstalledVersion({ previous: { installed } }: Target, version: string): boolean {
  return typeof installed?.version === 'string' && isSameVersion(installed.version, version)
}

/**
 * Binds the plan to the artifact's files, signs an extracted plugin as `signForHost` does, and returns what to install,
 * with the steps in order. Throws PlanError `invalid_plan`. Also throws as `signForHost` does.
 */
export async function orderInstallation(
  deployment: ArtifactDeployment,
  extracted: ExtractedVersion,
): Promise<InstallOrder> {
  const { plan } = extracted.target
  announceDefaultPlan(plan, deployment.tools.log)
  const part = await buildPart(deployment, extracted)
  const { steps, snapshot, hostConfig, skipped } = plan
  return { steps, snapshot, hostConfig, skipped, parts: [part], removals: [], origin: originOf(deployment) }
}

async function buildPart(deployment: ArtifactDeployment, extracted: ExtractedVersion): Promise<Part> {
  const { target, version, verified, pluginYaml, content } = extracted
  const { plan, previous } = target
  const environment = environmentOf(pluginYaml)
  const part = { ...target.place, version, artifactSha256: verified.sha256, environment, previous }
  const { keepPaths } = deployment
  if ('identity' in content) {
    bindToFiles(plan, path => hasRegularFile(content, path), keepPaths)
    noticeNoSigning(deployment)
    return { ...part, intact: content.identity }
  }
  bindToFiles(plan, pathTest(content.tree.files), keepPaths)
  const signed = { ...part, staged: content.staged, tree: await sign(deployment, extracted, content) }
  const isSame = previous.installed?.artifact_sha256 === verified.sha256 && isInstalledVersion(target, version)
  return isSame ? await keepIfIntact(deployment, signed, originOf(deployment)) : signed
}

async function checkVersion(
  deployment: ArtifactDeployment,
  fetched: AcceptedVersion,
  pluginYaml: PluginYaml | undefined,
): Promise<string> {
  const decided = decideVersion(fetched, pluginYaml)
  await deployment.record.update({ version: decided.version, version_source: decided.source })
  noticeOtherVersion(deployment.tools.log, fetched, decided)
  refuseVersion(deployment, fetched, decided.version)
  return decided.version
}

/**
 * Refuses a `latest` that is older than the installed version or cannot be compared with it, and a version that had
 * different bytes on this host. Called with the claimed version before the artifact is extracted, and with the actual
 * version afterwards.
 */
function refuseVersion(deployment: ArtifactDeployment, { served, target }: AcceptedVersion, version: string): void {
  const { request } = deployment
  if (request.version === 'latest' && !request.allowDowngrade)
    refuseDowngrade(version, stateFor(target.previous, originOf(deployment)))
  const known = versionsFrom(target.previous, originOf(deployment))
  refuseReusedVersion({ version, sha256: served.artifact.sha256 }, known, request)
}

async function sign(
  deployment: ArtifactDeployment,
  { target, pluginYaml }: ExtractedVersion,
  { staged, tree }: StagedTree,
): Promise<PartTree> {
  const { request, tools, layout, keepPaths } = deployment
  noticeNoSigning(deployment)
  if (pluginYaml === undefined) return tree
  const { place } = target.previous
  const kept = { installed: installPath(layout, place), keepPaths, log: tools.log }
  return await signForHost({ id: place.id, staged, tree, pluginYaml, ...kept }, request.pluginSecretKey)
}

function noticeNoSigning({ request, tools }: ArtifactDeployment): void {
  if (request.kind === 'service' && request.pluginSecretKey !== undefined)
    tools.log.notice('plugin-secret-key has no effect for a service.')
}
