import {
  type Ed25519Check,
  MAX_SEALED_BYTES,
  type SealedArtifact,
  type VerifiedSealedArtifact,
  verifySealedSignature,
} from '../core/trust/sealed-signature.ts'
import { verifyPinnedDigest } from '../core/trust/signature.ts'
import { refuseReusedVersion } from '../core/trust/version-rules.ts'
import { checkEd25519 } from '../install/archive/ed25519-check.ts'
import { readWhole } from '../install/archive/read-exactly.ts'
import { watchDownload } from '../install/deployment/download-progress.ts'
import { openPrivateFileSync } from '../install/files/private-file.ts'
import { isFrom, readHostRecord, snapshotsFrom } from '../install/host/installed.ts'
import type { Offer } from './request-artifact.ts'
import type { Run } from './run.ts'

/** Downloads the sealed file to a private file, then into memory, whole and once: its signature is over all of it. */
export async function downloadSealed(run: Run, { descriptor }: Offer): Promise<SealedArtifact> {
  const { request, client, tools } = run
  const file = openPrivateFileSync(tools.temporaryFolder)
  try {
    const { size, sha256 } = await client.downloadArtifact(descriptor, {
      fd: file.fd,
      maxBytes: Math.min(request.maxArtifactBytes, MAX_SEALED_BYTES),
      timeoutMs: request.downloadTimeoutMs,
      onProgress: watchDownload(tools),
    })
    await run.record.update({ artifact_sha256: sha256, artifact_size: size })
    const bytes = Buffer.from(new SharedArrayBuffer(size))
    await readWhole(file.fd, bytes)
    return { bytes, sha256, signature: descriptor.signature }
  } finally {
    file.close()
  }
}

/** Vouches for the sealed file by the pinned key, the pinned digest, and what this host knows of its version. */
export async function verifySealed(run: Run, offer: Offer, sealed: SealedArtifact): Promise<VerifiedSealedArtifact> {
  const { pinned, version } = offer
  const check: Ed25519Check = (bytes, key, signature) => checkEd25519(bytes, key, signature, run.tools.signal)
  const verified = await verifySealedSignature(sealed, pinned, check)
  const { artifactSha256, projectId } = run.request
  if (artifactSha256 !== undefined) verifyPinnedDigest(verified, artifactSha256)
  const { installed, removed } = readHostRecord(run.layout)
  const origin = { contract: 'project' as const, slug: projectId }
  const snapshots = [...installed, ...removed].flatMap(row => snapshotsFrom(row, origin))
  const known = [...installed.filter(row => isFrom(row, origin)), ...snapshots].map(row => ({
    version: row.project_version,
    artifact_sha256: row.artifact_sha256,
  }))
  refuseReusedVersion({ version, sha256: verified.sha256 }, known, artifactSha256)
  await run.record.update({ signer_public_key: pinned.base64 })
  run.tools.log.info(
    `The signature of the pinned key ${pinned.base64} holds for ${verified.size} bytes, sha256 ${verified.sha256}.`,
  )
  return verified
}
