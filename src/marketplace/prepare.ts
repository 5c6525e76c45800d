import { join } from 'node:path'
import type { ExtractionLimits } from '../core/archive/policy.ts'
import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import { ArtifactError, ConfigError } from '../core/errors.ts'
import { type Kind, versionSchema } from '../core/identifiers.ts'
import type { Log } from '../core/log.ts'
import { bytesInWords, cleanForeignText, countInWords, listAll, listNames, shortDigest } from '../core/text.ts'
import { type VerifiedArtifact, verifyHmacSignature, verifyPinnedDigest } from '../core/trust/signature.ts'
import { isSameVersion, refuseDowngrade, refuseReusedVersion, replacedBytes } from '../core/trust/versions.ts'
import { listZip } from '../install/archive/zip-extract.ts'
import { makeOpenDirectorySync } from '../install/files/durable.ts'
import { type ExtractedTree, noticeScripts, type PartTree, pathTest } from '../install/files/extracted-tree.ts'
import { withListed } from '../install/files/spelling.ts'
import { requireInPlace, verifyDestination } from '../install/host/destination.ts'
import { directoryIn, installPath, type Place, placeOf, placePath, usualDirectory } from '../install/host/layout.ts'
import { requireSafeDestination } from '../install/host/ownership.ts'
import { findPluginsDirectory, readHostsDirectory, refuseOutsideDirectory } from '../install/host/plugins-directory.ts'
import {
  type Chooser,
  factsOfReplaced,
  findLeftBehind,
  type PreviousInstall,
  presentRow,
  readPreviousInstall,
  stateFor,
  verifyPlace,
  versionsFrom,
} from '../install/host/previous-install.ts'
import { checkHost } from '../install/host/readiness.ts'
import { findInstalled, readInstalled } from '../install/host/record.ts'
import { type InstalledRow, isFrom, type SnapshotRow } from '../install/host/rows.ts'
import { makeInShelfSync } from '../install/host/stand-in.ts'
import { presentVersion, wasReplaced } from '../install/reports/audit.ts'
import { watchDownload } from '../install/run/deployment.ts'
import { environmentOf, type InstallOrder, keptIn, type NewPart, type Part } from '../install/steps/context.ts'
import { findIntactTree, hasContent, hasRegularFile, type IntactTree, keepIfIntact } from '../install/steps/drift.ts'
import { readPackedPluginYaml, signForHost } from '../install/steps/plugin-sig.ts'
import type { Tools } from '../install/transaction/record.ts'
import { type ArtifactDeployment, type DeployRequest, originOf } from './deployment.ts'
import type { MarketplaceClient, ServedArtifact } from './hub.ts'
import { announceDefaultPlan, bindToFiles, type ReadyArtifactPlan } from './plan.ts'

/** An artifact's plan and place, and the version that the artifact replaces. */
export interface ArtifactTarget {
  readonly plan: ReadyArtifactPlan
  /** The place that the artifact will have. */
  readonly place: Place
  readonly previous: PreviousInstall
}

/** A fetched artifact with a valid signature and, if a digest is pinned, that digest. */
export interface VerifiedVersion extends FetchedVersion {
  readonly verified: VerifiedArtifact
}

/** A verified artifact that may replace the installed version. */
interface AcceptedVersion extends VerifiedVersion {
  readonly target: ArtifactTarget
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
export async function findArtifactTarget(
  deployment: ArtifactDeployment,
  plan: ReadyArtifactPlan,
): Promise<ArtifactTarget> {
  const { layout, request, record, tools } = deployment
  refuseSecondCopy(deployment, plan)
  warnOfSecondCopy(deployment, plan)
  const { place, chosenBy } = choosePlace(deployment, plan)
  const previous = readPreviousInstall(layout, place)
  await record.update({
    previous_version: previous.version,
    ...directoryIn(place),
    ...factsOfReplaced(layout, { ...place, previous }, tools.log),
  })
  const { allowTakeover } = request
  const origin = originOf(deployment)
  verifyPlace(previous, { origin, allowTakeover, chosenBy: 'operator' }, tools.log)
  const destination = { target: place, chosenBy, allowTakeover, origin }
  verifyDestination(layout, destination)
  requireInPlace(layout, [destination])
  if (!request.dryRun) checkHost(deployment, place)
  return { plan, place, previous }
}

/**
 * Vouches for the artifact as `verifyServed` does, and records its digest, size and repository even if it is refused.
 */
export async function verifyArtifact(deployment: ArtifactDeployment, found: FetchedVersion): Promise<VerifiedVersion> {
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
 * Judges a version by the request or the hub's header before the artifact is extracted. Refuses a `latest` that is older
 * than the installed version, that cannot be compared with it, or whose bytes this host has replaced. The operator can
 * accept each of these. Throws DeploymentError `downgrade_refused`.
 */
export function acceptArtifact(deployment: ArtifactDeployment, fetched: AcceptedVersion): AcceptedVersion {
  const claimed = claimedVersion(fetched)
  if (claimed === undefined) return fetched
  refuseOlder(deployment, fetched, claimed)
  // Only the content shows whether the installed version has come in other bytes.
  if (!isInstalledVersion(fetched.target, claimed)) refuseOldBytes(deployment, fetched.verified.sha256)
  return fetched
}

/**
 * Determines the artifact's version, and extracts the artifact into `folder` unless the same bytes are installed and
 * intact. Throws as `checkVersion` does: ArtifactError `version_reused` or DeploymentError `downgrade_refused`.
 */
export async function extractArtifact(
  deployment: ArtifactDeployment,
  accepted: AcceptedVersion,
  folder: string,
): Promise<ExtractedVersion> {
  const installed = await findSameVersion(deployment, accepted)
  if (installed !== undefined) return installed
  const { pluginYaml, unpack } = await listArtifact(deployment, accepted.verified, folder)
  // Whether the version is new to this host is known only by its content.
  refuseOlder(deployment, accepted, decideVersion(accepted, pluginYaml).version)
  const content = await unpack(path => makeInShelfSync(deployment.layout, path, accepted.target.place))
  noticeScripts(deployment.tools.log, content.tree.scripts ?? [])
  const version = await checkVersion(deployment, accepted, { ...content, pluginYaml })
  return { ...accepted, content, pluginYaml, version }
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
  const installed = await findIntactTree(deployment, { ...target.place, previous: target.previous }, source)
  if (installed === undefined) return undefined
  const { pluginYaml } = installed
  if (deployment.request.kind === 'plugin' && pluginYaml === undefined) return undefined
  if (!isInstalledVersion(target, decideVersion(fetched, pluginYaml).version)) return undefined
  const version = await checkVersion(deployment, fetched, { pluginYaml })
  const name = placePath(target.place)
  deployment.tools.log.did(`not extracted: ${name} came from these bytes, and none of its files is missing or changed`)
  return { ...fetched, content: installed, pluginYaml, version }
}

/** The same bytes of a service may be served as another version, because a service's version comes from a header. */
function isInstalledVersion({ previous: { installed } }: ArtifactTarget, version: string): boolean {
  return typeof installed?.version === 'string' && isSameVersion(installed.version, version)
}

/**
 * Binds the plan to the artifact's files, signs an extracted plugin as `signForHost` does, and returns what to install,
 * with the steps in order. Throws PlanError `invalid_plan`.
 */
export async function orderArtifact(
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
  const keepPaths = keptIn(deployment, { ...target.place, environment })
  if ('identity' in content) {
    const installed = installPath(deployment.layout, target.place)
    bindToFiles(plan, path => hasRegularFile(content, path), withListed(installed, keepPaths))
    noticeNoSigning(deployment)
    return { ...part, intact: content.identity }
  }
  bindToFiles(plan, pathTest(content.tree.files), withListed(content.staged, keepPaths))
  const leftBehind = findLeftBehind(deployment.layout, part, originOf(deployment))
  const tree = await sign(deployment, extracted, { ...content, leftBehind })
  const signed = { ...part, staged: content.staged, tree, leftBehind }
  const isSame = isInstalledVersion(target, version) && !previous.installed?.modified
  return isSame ? await keepIfIntact(deployment, signed, originOf(deployment)) : signed
}

/**
 * Refuses an artifact whose files this host may not install: besides `acceptArtifact`, a version that had different
 * content on this host, and a `latest` with bytes that this host has replaced. The operator can accept each of these.
 */
async function checkVersion(
  deployment: ArtifactDeployment,
  fetched: AcceptedVersion,
  content: Partial<UnpackedArtifact>,
): Promise<string> {
  const decided = decideVersion(fetched, content.pluginYaml)
  const { version } = decided
  await deployment.record.update({ version, version_source: decided.source })
  noticeOtherVersion(deployment.tools.log, fetched, decided)
  refuseOlder(deployment, fetched, version)
  const known = versionsFrom(fetched.target.previous, originOf(deployment))
  const same = known.find(
    row => row.version !== null && isSameVersion(row.version, version) && isSameContent(deployment, row, content),
  )
  // A hub may pack the same files anew for each request. This host knows them by the digest that they had at first.
  const sha256 = same?.artifact_sha256 ?? fetched.verified.sha256
  refuseReusedVersion({ version, sha256 }, known, deployment.request)
  refuseOldBytes(deployment, sha256)
  return version
}

function isSameContent(
  { layout }: ArtifactDeployment,
  row: InstalledRow | SnapshotRow,
  { staged, tree, pluginYaml }: Partial<UnpackedArtifact>,
): boolean {
  return staged !== undefined && tree !== undefined && hasContent(layout, row, { staged, tree, pluginYaml })
}

/** Refuses a `latest` that is older than the installed version or cannot be compared with it. */
function refuseOlder(deployment: ArtifactDeployment, { target }: AcceptedVersion, version: string): void {
  const { request } = deployment
  if (request.version === 'latest' && !request.allowDowngrade)
    refuseDowngrade(version, stateFor(target.previous, originOf(deployment)))
}

/** Refuses a `latest` with bytes that this host has replaced: the unsigned header may give old bytes a new version. */
function refuseOldBytes({ request, layout, record: { facts } }: ArtifactDeployment, sha256: string): void {
  if (request.version !== 'latest' || request.allowDowngrade) return
  const origin = { contract: 'marketplace' as const, slug: request.slug }
  if (wasReplaced(layout, { origin, sha256 }))
    throw replacedBytes({ version: facts.version, sha256 }, presentVersion(layout, origin))
}

async function sign(
  deployment: ArtifactDeployment,
  { target, pluginYaml }: ExtractedVersion,
  { staged, tree, leftBehind }: StagedTree & Pick<NewPart, 'leftBehind'>,
): Promise<PartTree> {
  const { request, tools, layout } = deployment
  noticeNoSigning(deployment)
  if (pluginYaml === undefined) return tree
  const { place } = target
  const keepPaths = keptIn(deployment, { ...place, environment: environmentOf(pluginYaml) })
  const kept = { installed: leftBehind ?? installPath(layout, place), keepPaths, log: tools.log }
  return await signForHost({ id: place.id, staged, tree, pluginYaml, ...kept }, request.pluginSecretKey)
}

function noticeNoSigning({ request, tools }: ArtifactDeployment): void {
  if (request.kind === 'service' && request.pluginSecretKey !== undefined)
    tools.log.notice('plugin-secret-key has no effect for a service.')
}

/** The operator's expectations of the artifact itself. */
export interface ArtifactRules {
  readonly kind: Kind
  /** The only digest to accept. */
  readonly artifactSha256: string | undefined
  readonly extraction: ExtractionLimits
}

/** An extracted tree, and the folder that contains it. */
interface StagedTree {
  readonly staged: string
  readonly tree: ExtractedTree
}

export interface UnpackedArtifact extends StagedTree {
  /** Undefined for a service. */
  readonly pluginYaml: PluginYaml | undefined
}

type Checking = { readonly request: ArtifactRules; readonly tools: Pick<Tools, 'log' | 'signal'> }

/**
 * Vouches for an artifact by its HMAC (contract 4.3, rule 3), and by the pinned digest if there is one. Throws
 * SignatureError if either check fails.
 */
export function verifyServed(
  { request, tools }: Checking,
  { artifact, hmac, signatureHeader }: Pick<ServedArtifact, 'artifact' | 'hmac' | 'signatureHeader'>,
): VerifiedArtifact {
  const verified = verifyHmacSignature(artifact, hmac, signatureHeader)
  tools.log.did(`valid, sha256 ${shortDigest(artifact.sha256)}`)
  if (request.artifactSha256 !== undefined) verifyPinnedDigest(verified, request.artifactSha256)
  return verified
}

/** A verified artifact whose whole listing has passed. Nothing has been written. */
interface ListedArtifact extends Pick<UnpackedArtifact, 'pluginYaml'> {
  /** Writes the artifact's files into a directory that `makeTree` creates. */
  unpack(makeTree?: (path: string) => void): Promise<StagedTree>
}

/** Lists a verified artifact, to be extracted into `folder`, and reads a plugin's `plugin.yaml`. */
async function listArtifact(
  { request, tools }: Checking,
  verified: VerifiedArtifact,
  folder: string,
): Promise<ListedArtifact> {
  const staged = join(folder, 'tree')
  const zip = await listZip(verified, { target: staged, limits: request.extraction, signal: tools.signal })
  return {
    pluginYaml: request.kind === 'plugin' ? readPackedPluginYaml(zip) : undefined,
    async unpack(makeTree = makeOpenDirectorySync) {
      makeTree(staged)
      const tree = await zip.write()
      const flattened = tree.flattened === null ? '' : `, without their top-level directory ${tree.flattened}`
      tools.log.did(`${countInWords(tree.files.length, 'file')}, ${bytesInWords(tree.bytes)}${flattened}`)
      noticeTops(tools.log, request.kind, tree)
      return { staged, tree }
    },
  }
}

/**
 * Says which top-level entries were left out, and that a service's only directory was kept because of a single entry
 * next to it.
 */
function noticeTops(log: Log, kind: Kind, { files, directories, strays = [] }: ExtractedTree): void {
  if (strays.length > 0)
    log.notice(
      `The artifact's top-level ${listAll(strays)} ${strays.length === 1 ? 'was' : 'were'} left out: macOS adds ${strays.length === 1 ? 'it' : 'them'} to archives.`,
    )
  if (kind !== 'service') return
  const tops = [...new Set([...directories, ...files.map(({ path }) => path)].map(path => path.split('/')[0] ?? ''))]
  const [folder, ...others] = tops.filter(top => directories.includes(top))
  const [beside] = tops.filter(top => top !== folder)
  if (tops.length === 2 && folder !== undefined && others.length === 0 && beside !== undefined)
    log.notice(
      `The artifact has ${listNames([folder, beside])} at its top, so ${cleanForeignText(folder, 64)} is installed as a directory of the service: only a single top-level directory is left out.`,
    )
}

/** Reads a plugin's `plugin.yaml`, and then extracts the verified artifact into `folder`. */
export async function unpackArtifact(
  checking: Checking,
  verified: VerifiedArtifact,
  folder: string,
): Promise<UnpackedArtifact> {
  const { pluginYaml, unpack } = await listArtifact(checking, verified, folder)
  return { pluginYaml, ...(await unpack()) }
}

/** The place for an artifact. */
interface ChosenPlace {
  readonly place: Place
  /** The party that chooses the plugins directory. */
  readonly chosenBy: Chooser
}

/** Returns the place for the artifact of a plan; for a plugin, in the directory that `findPluginsDirectory` finds. */
function choosePlace(deployment: ArtifactDeployment, { id }: ReadyArtifactPlan): ChosenPlace {
  const { host, layout, shelf, request, tools } = deployment
  if (shelf === 'extensions') return { place: { shelf, id, directory: usualDirectory(shelf) }, chosenBy: 'operator' }
  if (request.pluginsDirectory === undefined)
    refuseOutsideDirectory(layout, 'Correct that file, or set plugins-directory')
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  const recorded = installed && placeOf(installed).directory
  const known = { input: request.pluginsDirectory, recorded, otherwise: usualDirectory(shelf) }
  const { directory, isOperators } = findPluginsDirectory(layout, known, tools.log)
  for (const accepted of requireSafeDestination(host, directory)) tools.log.warning(accepted)
  return { place: { shelf, id, directory }, chosenBy: isOperators ? 'operator' : 'host' }
}

/** Returns the place in which a part is installed (see `presentRow`), or its usual place if it is not installed. */
export function installedPlace(
  { layout, shelf, request }: Pick<ArtifactDeployment, 'layout' | 'shelf' | 'request'>,
  id: string,
): Place {
  const installed = findInstalled(readInstalled(layout), { shelf, id })
  if (installed === undefined) return { shelf, id, directory: usualDirectory(shelf) }
  return placeOf(presentRow(layout, installed, request.pluginsDirectory ?? readHostsDirectory(layout).directory))
}

type CopyCheck = Pick<ArtifactDeployment<string>, 'layout' | 'request' | 'shelf'>

/**
 * Refuses a default plan if an earlier plan installed the same slug under a different id. The default plan would
 * install a second copy, whose id is the slug, and leave the first one as it is. Throws ConfigError `missing_input`.
 */
export function refuseSecondCopy(deployment: CopyCheck, { id, defaultPlan }: ReadyArtifactPlan): void {
  const other = defaultPlan && findOnlyCopy(deployment, id)
  if (other === undefined) return
  throw new ConfigError(
    'missing_input',
    `install-plan names no file, and the default plan would install ${deployment.request.slug} as ${id}, although an earlier plan has installed ${deployment.request.slug} here as ${placePath(other)}: name a plan for the id ${other.id} in install-plan. Nothing was changed.`,
  )
}

/** Warns if the operator's own plan would install a second copy: the plan's id may be a mistake. */
function warnOfSecondCopy(
  deployment: CopyCheck & Pick<ArtifactDeployment, 'tools'>,
  { id, defaultPlan }: ReadyArtifactPlan,
): void {
  const other = defaultPlan === undefined ? findOnlyCopy(deployment, id) : undefined
  if (other === undefined) return
  deployment.tools.log.warning(
    `This plan installs ${deployment.request.slug} as ${id}, although it is installed here as ${placePath(other)}, which stays as it is: if the plan's id is a mistake, correct the id.`,
  )
}

/**
 * Returns the place of a copy of the slug with a different id; undefined if there is none, or if another copy has this
 * id.
 */
function findOnlyCopy({ layout, request, shelf }: CopyCheck, id: string): Place | undefined {
  const origin = originOf({ request })
  const copies = readInstalled(layout).filter(row => isFrom(row, origin) && placeOf(row).shelf === shelf)
  const [other] = copies
  return other === undefined || copies.some(row => row.id === id) ? undefined : placeOf(other)
}

export interface DeployedVersion {
  version: string
  /** The source of the version. The signature covers only `plugin.yaml`, not the other two. */
  source: 'plugin.yaml' | 'header' | 'requested'
}

/** The claims about the version that was served, before plugin.yaml is read. */
export interface VersionClaims {
  /** The requested version; undefined if the hub chose. */
  readonly asked: string | undefined
  /** The version that the hub lists as its latest, if this run asked for it. The hub may serve another version. */
  readonly listed: string | undefined
  /** The version in the hub's header, which is not signed. */
  readonly served: { readonly headerVersion: string | undefined }
}

/**
 * Decides which version an artifact is. A plugin's own `plugin.yaml` decides. It must match the requested version or,
 * if the hub chose the version, the hub's header. For a service, or if `plugin.yaml` names no version, the hub's header
 * decides, even if it differs from the requested version. Without a header, the request decides; for `latest`, that is
 * the version that the hub lists. Throws ArtifactError `version_mismatch`, or `no_published_version` if there is no
 * claim at all.
 */
export function decideVersion(claims: VersionClaims, pluginYaml: PluginYaml | undefined): DeployedVersion {
  const version = pluginYaml?.version
  const { headerVersion } = claims.served
  if (version !== undefined) {
    const claimed = claimedVersion(claims)
    if (claimed !== undefined && !isSameVersion(version, claimed)) throw mismatch(claims, version)
    if (!versionSchema.safeParse(version).success) throw unusable(version)
    return { version, source: 'plugin.yaml' }
  }
  if (headerVersion !== undefined) return { version: headerVersion, source: 'header' }
  const requested = claims.asked ?? claims.listed
  if (requested === undefined)
    throw new ArtifactError(
      'no_published_version',
      'The hub served its latest artifact without saying which version it is: name a version.',
    )
  return { version: requested, source: 'requested' }
}

/** The claimed version before the artifact is opened: the requested one, else the hub's header. */
export function claimedVersion({ asked, served }: VersionClaims): string | undefined {
  return asked ?? served.headerVersion
}

function unusable(found: string): ArtifactError {
  return new ArtifactError(
    'version_mismatch',
    `The artifact's plugin.yaml says version "${cleanForeignText(found, 60)}", which no hub or host accepts as a version: the artifact was refused. Have the publisher correct plugin.yaml and publish again, or use another version.`,
  )
}

function mismatch({ asked, served }: VersionClaims, found: string): ArtifactError {
  const claim =
    asked === undefined && served.headerVersion !== undefined
      ? `The hub says that it served version ${served.headerVersion}`
      : `The requested version is ${asked ?? 'latest'}`
  const isSameNumber = Number(asked ?? served.headerVersion) === Number(found)
  const hint = isSameNumber ? ' (without quotes, it is a number, and loses its final zeros)' : ''
  return new ArtifactError(
    'version_mismatch',
    `${claim}, but the artifact's plugin.yaml says "${cleanForeignText(found, 60)}"${hint}: the artifact was refused. Have the publisher correct plugin.yaml and publish again, or use another version.`,
  )
}

/** An artifact as a hub served it, and the claims about its version. */
export interface FetchedVersion extends VersionClaims {
  readonly served: ServedArtifact
}

/** A request for an artifact, and the open, empty file to write the artifact to. */
interface Fetching {
  readonly request: Pick<DeployRequest, 'version' | 'maxArtifactBytes' | 'downloadTimeoutMs' | 'signingSecret'>
  readonly client: MarketplaceClient
  readonly tools: Pick<Tools, 'log' | 'now' | 'runner'>
  readonly fd: number
}

/**
 * Fetches the requested version, and records it. For `latest`, records the version in the hub's header, if the header
 * names one.
 */
export async function fetchArtifact(deployment: ArtifactDeployment, fd: number): Promise<FetchedVersion> {
  const { request, client, tools, record } = deployment
  if (request.version !== 'latest') await record.update({ version: request.version, version_source: 'requested' })
  const found = await fetchRequested({ request, client, tools, fd })
  const { headerVersion } = found.served
  if (found.asked === undefined && headerVersion !== undefined)
    await record.update({ version: headerVersion, version_source: 'header' })
  const version = record.facts.version ?? found.listed ?? request.version
  tools.log.did(
    `${request.slug} ${version} from ${new URL(request.bases[request.kind === 'plugin' ? 'hub' : 'services']).host}, ${bytesInWords(found.served.artifact.size)}`,
  )
  return found
}

/**
 * Fetches the requested version without recording it. With `latest`, the hub chooses the version. If the hub holds back
 * or has yanked the version that it lists as its latest, it may serve another one. For a private plugin, the hub lists
 * no version.
 */
export async function fetchRequested(fetching: Fetching): Promise<FetchedVersion> {
  const { version } = fetching.request
  const isLatest = version === 'latest'
  const listed = isLatest ? await readListed(fetching) : undefined
  const served = await fetchVersion(fetching, version)
  return { served, asked: isLatest ? undefined : version, listed }
}

async function readListed({ client, tools: { log } }: Fetching): Promise<string | undefined> {
  const answer = await client.readListedVersion()
  if ('version' in answer) log.info(`The hub lists ${answer.version} as its latest version.`)
  else
    log.info(
      `Without a key, the hub lists no version (it answered ${answer.status}). This run asks for the artifact with the key.`,
    )
  return 'version' in answer ? answer.version : undefined
}

/**
 * Logs a notice if the hub served a version other than the requested or listed one, or did not say which version it
 * served.
 */
export function noticeOtherVersion(log: Log, { asked, listed }: FetchedVersion, decided: DeployedVersion): void {
  const { version, source } = decided
  if (asked !== undefined && !isSameVersion(version, asked))
    log.notice(`The requested version is ${asked}, but the hub's header, which is not signed, says ${version}.`)
  if (listed !== undefined && !isSameVersion(version, listed))
    log.notice(
      `The hub lists ${listed} as its latest version, but served ${version}: the hub may be holding ${listed} back for review, or may have yanked ${listed}.`,
    )
  if (asked === undefined && source === 'requested')
    log.notice(
      `The hub does not say which version it served: this run assumes ${version}, which the hub lists as its latest.`,
    )
}

async function fetchVersion({ request, client, tools, fd }: Fetching, version: string): Promise<ServedArtifact> {
  return await client.fetchArtifact({
    version,
    fd,
    maxBytes: request.maxArtifactBytes,
    timeoutMs: request.downloadTimeoutMs,
    signingSecret: request.signingSecret,
    onProgress: watchDownload(tools),
  })
}
