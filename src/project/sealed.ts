import { join } from 'node:path'
import {
  isSourced,
  MAX_MANIFEST_BYTES,
  type Manifest,
  parseManifest,
  verifyManifest,
} from '../core/content/manifest.ts'
import { verifyContent } from '../core/content/project-content.ts'
import { isFixed } from '../core/content/source.ts'
import { ArtifactError } from '../core/errors.ts'
import { BUNDLED_PLAN_LIMITS } from '../core/identifiers.ts'
import type { Log } from '../core/log.ts'
import { isInstallStep, placeOfInstall } from '../core/plan/binding.ts'
import { type Plan, parsePlan } from '../core/plan/plan.ts'
import { bytesInWords, countInWords, listFirst, shortDigest } from '../core/text.ts'
import {
  type Ed25519Check,
  findPinnedKey,
  MAX_SEALED_BYTES,
  type SealedArtifact,
  type SignerKey,
  type VerifiedSealedArtifact,
  verifyPinnedDigest,
  verifySealedSignature,
} from '../core/trust/signature.ts'
import { refuseDowngrade, refuseReusedVersion, replacedBytes, type ServedVersion } from '../core/trust/versions.ts'
import { readWhole } from '../install/archive/pieces.ts'
import { checkEd25519, freeArtifact, type OpenedArtifact, unseal } from '../install/archive/sealed.ts'
import { type ListedTar, listTar } from '../install/archive/tar.ts'
import { makeOpenDirectorySync } from '../install/files/durable.ts'
import type { ExtractedTree } from '../install/files/extracted-tree.ts'
import { openPrivateFileSync, tryReadSmallFileSync } from '../install/files/open.ts'
import { type Layout, placeName, placeOf, usualDirectory } from '../install/host/layout.ts'
import { asRecorded } from '../install/host/plugins-directory.ts'
import { readPreviousInstall } from '../install/host/previous-install.ts'
import { checkHost, checkShelf } from '../install/host/readiness.ts'
import { readHostRecord, readInstalled, recordedDirectories } from '../install/host/record.ts'
import { isFrom, snapshotsFrom } from '../install/host/rows.ts'
import { makeStandInSync } from '../install/host/stand-in.ts'
import { presentVersion, wasReplaced } from '../install/reports/audit.ts'
import { newestProjectVersion } from '../install/reports/local-report.ts'
import { watchDownload } from '../install/run/deployment.ts'
import type { InstalledPart } from '../install/steps/context.ts'
import { findIntactTree, type IntactTree } from '../install/steps/drift.ts'
import type { Deployment } from '../install/transaction/record.ts'
import type { ProjectDeployment } from './deployment.ts'
import type { ArtifactDescriptor } from './hub.ts'

/** The path of the plan, relative to the project's root. */
export const BUNDLED_PLAN = 'deployment/install.yaml'

/**
 * Reads the plan of the project whose files are in the folder `content`. Throws PlanError `invalid_plan` if the plan is
 * refused, and ArtifactError `invalid_manifest` if there is no plan, or if the plan is too large.
 */
export function readBundledPlan(content: string): Plan {
  const text = tryReadSmallFileSync(join(content, BUNDLED_PLAN), BUNDLED_PLAN_LIMITS.bytes)
  if (text !== undefined) return parsePlan(text, BUNDLED_PLAN, BUNDLED_PLAN_LIMITS)
  throw new ArtifactError(
    'invalid_manifest',
    `The project has no ${BUNDLED_PLAN} of at most ${BUNDLED_PLAN_LIMITS.bytes} bytes: nothing was installed. The publisher must correct this and seal the project again.`,
  )
}

const MANIFEST_AND_PLAN: ReadonlySet<string> = new Set(['manifest.json', BUNDLED_PLAN])

/** The artifact of a project, extracted into the staging folder as far as is needed. */
export interface ExtractedProject {
  /** The folder that contains the extracted files. */
  readonly content: string
  readonly tree: ExtractedTree
  /**
   * The project's parts, by name, if all parts that its plan installs are installed from this artifact and intact. The
   * folder then contains only the manifest and the plan.
   */
  readonly installed?: ReadonlyMap<string, IntactTree> | undefined
  /** The project's parts, by name, that are installed from this artifact and intact, even if other parts are not. */
  readonly intact?: ReadonlyMap<string, IntactTree> | undefined
}

/** The decrypted artifact of a project. */
interface OpenedProject {
  readonly artifact: OpenedArtifact
  /** The digest of the sealed file. */
  readonly sha256: string
}

/**
 * Downloads the sealed file to a private file, then reads all of it into memory once, because the signature covers the
 * whole file.
 */
export async function downloadSealed(
  { request, client, tools, record }: ProjectDeployment,
  { descriptor }: Offer,
): Promise<SealedArtifact> {
  const file = openPrivateFileSync(tools.runner.temporaryFolder)
  try {
    const { size, sha256 } = await client.downloadArtifact(descriptor, {
      fd: file.fd,
      maxBytes: Math.min(request.maxArtifactBytes, MAX_SEALED_BYTES),
      isFixedMax: request.maxArtifactBytes >= MAX_SEALED_BYTES,
      timeoutMs: request.downloadTimeoutMs,
      onProgress: watchDownload(tools),
    })
    await record.update({ artifact_sha256: sha256, artifact_size: size })
    tools.log.did(bytesInWords(size))
    const bytes = Buffer.from(new ArrayBuffer(size))
    await readWhole(file.fd, bytes)
    return { bytes, sha256, signature: descriptor.signature }
  } finally {
    file.close()
  }
}

/**
 * Vouches for the sealed file: it has a valid signature by the pinned key, and the pinned digest if there is one.
 * Throws SignatureError if either check fails.
 */
export async function verifySealed(
  { request, tools, record }: ProjectDeployment,
  { pinned }: Offer,
  sealed: SealedArtifact,
): Promise<VerifiedSealedArtifact> {
  const check: Ed25519Check = signed => checkEd25519(signed, tools.signal)
  const verified = await verifySealedSignature(sealed, pinned, check)
  tools.log.did(`valid for the pinned key ${pinned.base64}, sha256 ${shortDigest(verified.sha256)}`)
  const { artifactSha256 } = request
  if (artifactSha256 !== undefined) verifyPinnedDigest(verified, artifactSha256)
  await record.update({ signer_public_key: pinned.base64 })
  return verified
}

/**
 * Refuses a version that had different bytes on this host. Refuses a `latest` that is older than the installed version,
 * that cannot be compared with it, or whose bytes this host has replaced. The operator can accept each of these. Throws
 * DeploymentError `downgrade_refused` or ArtifactError `version_reused`.
 */
export function acceptProjectVersion(deployment: ProjectDeployment, served: ServedVersion): void {
  refuseOlderProject(deployment, served.version)
  refuseReusedVersion(served, knownVersions(deployment), deployment.request)
  refuseOldBytes(deployment, served)
}

/** Refuses a `latest` with bytes that this host has had and replaced, whatever version the hub now gives them. */
function refuseOldBytes({ request, layout }: ProjectDeployment, { version, sha256 }: ServedVersion): void {
  if (request.version !== 'latest' || request.allowDowngrade) return
  const origin = { contract: 'project' as const, slug: request.projectId }
  if (wasReplaced(layout, { origin, sha256 })) throw replacedBytes({ version, sha256 }, presentVersion(layout, origin))
}

/** Decrypts a verified file, and wipes the key even if the decryption fails. */
export async function openSealed(
  { tools }: ProjectDeployment,
  verified: VerifiedSealedArtifact,
  dek: Buffer,
): Promise<OpenedProject> {
  const { sha256 } = verified
  try {
    return { artifact: await unseal(verified, dek, tools.signal), sha256 }
  } finally {
    dek.fill(0)
  }
}

/** A project whose whole listing has passed. Its manifest and its plan have been extracted. */
interface ListedProject extends ExtractedProject {
  /**
   * Extracts the other files, if they are needed. Consumes the artifact: its memory is freed before the tree is
   * compared and recorded.
   */
  extract(): Promise<ExtractedTree>
}

/**
 * Reads a whole project, and extracts its manifest and its plan. Of a large project, also extracts other files while it
 * reads (see `listTar`), unless a part is installed from this artifact and intact.
 */
export async function listSealed(
  deployment: ProjectDeployment,
  { artifact, sha256 }: OpenedProject,
  folder: string,
): Promise<ListedProject> {
  const { request, tools } = deployment
  const intact = await findInstalledParts(deployment, sha256)
  const content = join(folder, 'content')
  makeOpenDirectorySync(content)
  const tar = await listTar(artifact, {
    target: content,
    limits: request.extraction,
    signal: tools.signal,
    makeFolder: folderMaker(deployment.layout),
    first: MANIFEST_AND_PLAN,
    onlyFirst: intact !== undefined,
  })
  const { tree } = tar
  const installed = intact !== undefined && isAllInstalled(deployment.layout, content, intact) ? intact : undefined
  tools.log.did(
    installed === undefined
      ? `${countInWords(tree.files.length, 'file')}, ${bytesInWords(tree.bytes)}`
      : 'only manifest and plan: the parts came from these bytes, and no file is missing or changed',
  )
  return { content, tree, intact, installed, extract: async () => await finish(artifact, tar, installed === undefined) }
}

/**
 * Returns a function that creates a directory of the archive: a shelf of this host as its stand-in, so that the parts
 * inherit from the shelf. A shelf that only the manifest names is not known before the manifest has been read.
 */
function folderMaker(layout: Layout): (path: string, at: string) => void {
  const shelves = new Set([...recordedDirectories(readHostRecord(layout)), ...SHELVES.map(usualDirectory)])
  return (path, at) => {
    if (shelves.has(path)) makeStandInSync(layout, at, { directory: path })
    else makeOpenDirectorySync(at)
  }
}

async function finish(artifact: OpenedArtifact, { tree, write }: ListedTar, isNeeded: boolean): Promise<ExtractedTree> {
  const extracted = isNeeded ? await write() : tree
  // After an error, the memory is not freed here, because a decoder may still read it.
  freeArtifact(artifact)
  return extracted
}

/** The versions of this project that the host has or retains. */
function knownVersions({ layout, request }: ProjectDeployment) {
  const origin = { contract: 'project' as const, slug: request.projectId }
  const { installed, removed } = readHostRecord(layout)
  const snapshots = [...installed, ...removed].flatMap(row => snapshotsFrom(row, origin))
  return [...installed.filter(row => isFrom(row, origin)), ...snapshots].map(row => ({
    version: row.project_version,
    artifact_sha256: row.artifact_sha256,
  }))
}

/**
 * The version to deploy, the hub's description of its artifact, and the pinned key that must have signed the artifact.
 */
interface Offer {
  version: string
  descriptor: ArtifactDescriptor
  pinned: SignerKey
}

/**
 * Chooses the version and asks the hub to describe its artifact; downloads nothing. Throws SignatureError
 * `untrusted_signer` if the hub names a signer whose key is not pinned, and DeploymentError `downgrade_refused` for a
 * `latest` that is older than the installed version or cannot be compared with it.
 */
export async function requestArtifact(deployment: ProjectDeployment): Promise<Offer> {
  const { request, client, tools } = deployment
  const version = await chooseVersion(deployment)
  const descriptor = await client.readDescriptor(version)
  const pinned = findPinnedKey(request.signerKeys, descriptor.signerPublicKey)
  tools.log.did(`${request.projectId} ${version}`)
  return { version, descriptor, pinned }
}

/**
 * Refuses a `latest` as `refuseDowngrade` does, based on the version that this run last read from the host's record.
 */
function refuseOlderProject({ request, record }: ProjectDeployment, version: string): void {
  if (request.version !== 'latest' || request.allowDowngrade) return
  refuseDowngrade(version, { version: record.facts.previous_version, isOurs: true })
}

async function chooseVersion(deployment: ProjectDeployment): Promise<string> {
  const { request, client, record } = deployment
  const note = async (version: string) => await record.update({ version, version_source: 'requested' })
  if (request.version !== 'latest') {
    await note(request.version)
    return request.version
  }
  const latest = await client.readLatestVersion()
  await note(latest)
  refuseOlderProject(deployment, latest)
  return latest
}

const MAX_LISTED_PARTS = 20

/** A project whose manifest matches its content and the requested version. */
export interface VerifiedProject extends ExtractedProject {
  readonly manifest: Manifest
}

/**
 * Reads the manifest. Checks its project id, its version and the ids of its parts against the request, and the
 * listed files against its content digest. Only then extracts the files. Throws ArtifactError `invalid_manifest`,
 * `version_mismatch`, `content_mismatch`, `unpinned_source` or `unexpected_part`, ArchiveError `unsafe_archive`, and
 * DeploymentError as `ListedTar.write` does.
 */
export async function verifyProject(
  { layout, request, tools, record }: ProjectDeployment,
  version: string,
  { extract, ...listed }: ListedProject,
): Promise<VerifiedProject> {
  const manifest = readManifest(layout, listed.content)
  verifyManifest(manifest, { projectId: request.projectId, version })
  refuseUnexpected(manifest, request.projectIds)
  if (listed.installed === undefined) verifyFiles(manifest, listed.tree, tools.log)
  await record.update({ version: manifest.version, version_source: 'manifest' })
  return { ...listed, tree: await extract(), manifest }
}

/**
 * Not needed for a version that is installed from the same bytes, because that version has already passed this check.
 */
function verifyFiles(manifest: Manifest, tree: ExtractedTree, log: Log): void {
  const { warnings, unnamed } = verifyContent(manifest, tree)
  for (const warning of warnings) log.warning(warning)
  for (const folder of unnamed) log.notice(`The manifest does not name ${folder}, so this directory is not installed.`)
}

/** Refuses ids that the operator did not list, if there is a list. */
function refuseUnexpected({ parts }: Manifest, allowed: readonly string[] | undefined): void {
  const unexpected = parts.filter(({ id }) => allowed !== undefined && !allowed.includes(id))
  if (unexpected.length === 0) return
  const names = listFirst(
    unexpected.map(({ shelf, id }) => `${shelf}/${id}`),
    MAX_LISTED_PARTS,
  )
  throw new ArtifactError(
    'unexpected_part',
    `The project contains ${names}, which project-ids does not list: nothing was installed. Ask the publisher why. To accept a part, add its id to project-ids.`,
  )
}

/**
 * Reads `manifest.json` in the folder `content`. Each part gets its directory in the spelling that this host's record
 * uses. Throws as `parseManifest` does, and ArtifactError `invalid_manifest` if there is no such file, or if the file
 * is too large.
 */
function readManifest(layout: Layout, content: string): Manifest {
  const text = tryReadSmallFileSync(join(content, 'manifest.json'), MAX_MANIFEST_BYTES)
  if (text === undefined)
    throw new ArtifactError(
      'invalid_manifest',
      `The artifact has no manifest.json of at most ${MAX_MANIFEST_BYTES} bytes at its root: nothing was installed. The publisher must correct this and seal the project again.`,
    )
  const manifest = parseManifest(text)
  return {
    ...manifest,
    parts: manifest.parts.map(part => ({ ...part, directory: asRecorded(layout, part.directory) })),
  }
}

const SHELVES = ['plugins', 'extensions'] as const

/** Returns the installed parts of a project, of any version, according to this action's record. */
export function readInstalledParts({ layout }: Pick<Deployment, 'layout'>, projectId: string): InstalledPart[] {
  const rows = readInstalled(layout).filter(row => row.contract === 'project' && row.slug === projectId)
  return rows.map(installed => ({ ...placeOf(installed), installed }))
}

/** Notes the project's version on this host: that of the part installed last, according to this action's record. */
export async function noteInstalledProject(deployment: ProjectDeployment): Promise<void> {
  const rows = readInstalledParts(deployment, deployment.request.projectId).map(({ installed }) => installed)
  await deployment.record.update({ previous_version: newestProjectVersion(rows) })
}

/**
 * Checks the host as far as possible before the artifact's content is known: the extensions' directory, and the
 * directories of the installed parts. If none of these parts is a plugin, also checks the usual plugins directory.
 * Ignores the plugins directory that the host framework's own file names, because a project does not use it.
 */
export function checkInstalledParts(deployment: ProjectDeployment): void {
  const { layout, request } = deployment
  const installed = readInstalledParts({ layout }, request.projectId)
  const hasPlugins = installed.some(({ shelf }) => shelf === 'plugins')
  for (const shelf of hasPlugins ? (['extensions'] as const) : SHELVES)
    checkShelf(layout, { shelf, directory: usualDirectory(shelf) })
  for (const part of installed) checkHost(deployment, part)
}

/** Returns the project's intact parts that came from this artifact, by name; undefined if there are none. */
async function findInstalledParts(
  deployment: ProjectDeployment,
  sha256: string,
): Promise<ReadonlyMap<string, IntactTree> | undefined> {
  const { layout, request } = deployment
  const origin = { contract: 'project' as const, slug: request.projectId }
  const found = new Map<string, IntactTree>()
  for (const part of readInstalledParts(deployment, request.projectId)) {
    const replaced = { ...part, previous: readPreviousInstall(layout, part) }
    const installed = await findIntactTree(deployment, replaced, { origin, sha256 })
    if (installed !== undefined) found.set(placeName(part), installed)
  }
  return found.size === 0 ? undefined : found
}

/**
 * True if `installed` contains every part that the plan in this folder installs, each in the directory that the
 * manifest names. False if any part has a source that may have changed, or if the plan or the manifest cannot be read.
 */
function isAllInstalled(layout: Layout, content: string, installed: ReadonlyMap<string, IntactTree>): boolean {
  try {
    const steps = readBundledPlan(content).steps.filter(isInstallStep)
    const { parts } = readManifest(layout, content)
    const places = new Map(parts.map(part => [placeName(part), part]))
    const isInPlace = (name: string): boolean => places.get(name)?.directory === installed.get(name)?.place.directory
    const isAll = steps.map(placeOfInstall).every(name => installed.has(name) && isInPlace(name))
    return isAll && parts.filter(isSourced).every(({ source }) => isFixed(source))
  } catch {
    return false
  }
}
