import { findPinnedKey, type SignerKey } from '../core/trust/signer-keys.ts'
import { refuseDowngrade } from '../core/trust/version-rules.ts'
import type { ArtifactDescriptor } from './api/client.ts'
import type { ProjectDeployment } from './deployment.ts'

/** The version that the hub offers, and the pinned key that must have signed it. */
export interface Offer {
  version: string
  descriptor: ArtifactDescriptor
  pinned: SignerKey
}

/**
 * Asks for the version's artifact. Throws SignatureError `untrusted_signer` before anything is downloaded if no pinned
 * key has signed it, and DeploymentError `downgrade_refused` for a `latest` older than the installed version.
 */
export async function requestArtifact(deployment: ProjectDeployment): Promise<Offer> {
  const { request, client, tools } = deployment
  const version = await chooseVersion(deployment)
  const descriptor = await client.readDescriptor(version)
  const pinned = findPinnedKey(request.signerKeys, descriptor.signerPublicKey)
  tools.log.did(`${request.projectId} ${version}`)
  return { version, descriptor, pinned }
}

/** Refuses a `latest` that is older than this host's version when its record was last read. */
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
