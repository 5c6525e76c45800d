import { join } from 'node:path'
import { bytesInWords, countInWords, shortDigest } from '../core/quantities.ts'
import {
  type Ed25519Check,
  MAX_SEALED_BYTES,
  type SealedArtifact,
  type VerifiedSealedArtifact,
  verifySealedSignature,
} from '../core/trust/sealed-signature.ts'
import { verifyPinnedDigest } from '../core/trust/signature.ts'
import { refuseReusedVersion, replacedBytes, type ServedVersion } from '../core/trust/version-rules.ts'
import { checkEd25519 } from '../install/archive/ed25519-check.ts'
import { extractTar, type TarExtractionRequest } from '../install/archive/extract-tar.ts'
import { readWhole } from '../install/archive/read-exactly.ts'
import { discard, type OpenedArtifact, unseal } from '../install/archive/unseal.ts'
import { watchDownload } from '../install/deployment/download-progress.ts'
import { makeOpenDirectorySync } from '../install/files/durable-files.ts'
import { openPrivateFileSync } from '../install/files/private-file.ts'
import type { ExtractedTree } from '../install/files/trees/extracted-tree.ts'
import { readHostRecord } from '../install/host/installed/host-record.ts'
import { isFrom, snapshotsFrom } from '../install/host/installed/origin.ts'
import { presentVersion, wasReplaced } from '../install/reports/replaced-artifact.ts'
import type { IntactTree } from '../install/steps/parts/intact-part.ts'
import { BUNDLED_PLAN } from './bundled-plan.ts'
import type { ProjectDeployment } from './deployment.ts'
import { type Offer, refuseOlder } from './offer.ts'
import { findInstalledParts, isAllInstalled } from './parts/installed-parts.ts'

const MANIFEST_AND_PLAN: ReadonlySet<string> = new Set(['manifest.json', BUNDLED_PLAN])

/** The artifact of a project, extracted into the staging folder. */
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
export interface OpenedProject {
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
export function acceptVersion(deployment: ProjectDeployment, served: ServedVersion): void {
  refuseOlder(deployment, served.version)
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

/**
 * Extracts a project. If all parts that its plan installs are installed from this artifact and intact, extracts only
 * the manifest and the plan. Consumes the artifact: its memory is freed before the tree is compared and recorded.
 */
export async function extractSealed(
  deployment: ProjectDeployment,
  opened: OpenedProject,
  folder: string,
): Promise<ExtractedProject> {
  const extracted = await extractNeeded(deployment, opened, folder)
  // After an error, the memory is not freed here, because a decoder may still read it.
  discard(opened.artifact)
  return extracted
}

async function extractNeeded(
  deployment: ProjectDeployment,
  opened: OpenedProject,
  folder: string,
): Promise<ExtractedProject> {
  const installed = await findInstalledParts(deployment, opened.sha256)
  if (installed !== undefined) {
    const content = join(folder, 'manifest-and-plan')
    const tree = await extractInto(deployment, opened, { target: content, only: MANIFEST_AND_PLAN })
    if (isAllInstalled(content, installed)) {
      deployment.tools.log.did(
        'only manifest and plan: the parts came from these bytes, and no file is missing or changed',
      )
      return { content, tree, installed, intact: installed }
    }
  }
  const content = join(folder, 'content')
  const tree = await extractInto(deployment, opened, { target: content })
  deployment.tools.log.did(`${countInWords(tree.files.length, 'file')}, ${bytesInWords(tree.bytes)}`)
  return { content, tree, intact: installed }
}

async function extractInto(
  { request, tools }: ProjectDeployment,
  { artifact }: OpenedProject,
  wanted: Pick<TarExtractionRequest, 'target'> & Partial<TarExtractionRequest>,
): Promise<ExtractedTree> {
  makeOpenDirectorySync(wanted.target)
  return await extractTar(artifact, { ...wanted, limits: request.extraction, signal: tools.signal })
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
