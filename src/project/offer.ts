import { findPinnedKey, type SignerKey } from '../core/trust/signer-keys.ts'
import { refuseDowngrade } from '../core/trust/version-rules.ts'
import type { ArtifactDescriptor } from './api/client.ts'
import type { ProjectDeployment } from './deployment.ts'

/**
 * The version to deploy, the hub's description of its artifact, and the pinned key that must have signed the artifact.
 */
export interface Offer {
  version: string
  descriptor: ArtifactDescriptor
  pinned: SignerKey
}

/**
 * Chooses the version and asks the hub to describe its artifact; downloads nothing. Throws SignatureError
 * `untrusted_signer` if the hub names a signer whose key is not pinned, DeploymentError `downgrade_refused` for a
 * `latest` that is older than the installed version or cannot be compared with it, and what the client throws.
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
export function refuseOlder({ request, record }: ProjectDeployment, version: string): void {
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
  refuseOlder(deployment, latest)
  return latest
}
