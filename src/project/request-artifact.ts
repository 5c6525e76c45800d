import { findPinnedKey, type SignerKey } from '../core/trust/signer-keys.ts'
import { refuseDowngrade } from '../core/trust/version-rules.ts'
import type { ArtifactDescriptor } from './client.ts'
import type { Run } from './run.ts'

/** What the hub offers, and by which pinned key it must be signed. */
export interface Offer {
  version: string
  descriptor: ArtifactDescriptor
  pinned: SignerKey
}

/**
 * Asks for the version's artifact. What is not signed by a pinned key is refused before anything is downloaded: SignatureError
 * `untrusted_signer`. A `latest` older than the installed version: DeploymentError `downgrade_refused`.
 */
export async function requestArtifact(run: Run): Promise<Offer> {
  const { request, client, tools } = run
  const version = await chooseVersion(run)
  const descriptor = await client.readDescriptor(version)
  const pinned = findPinnedKey(request.signerKeys, descriptor.signerPublicKey)
  tools.log.info(`Version ${version} is offered under the pinned key ${pinned.base64}.`)
  return { version, descriptor, pinned }
}

async function chooseVersion({ request, client, record, tools }: Run): Promise<string> {
  const note = (version: string) => record.update({ version, version_source: 'requested' })
  if (request.version !== 'latest') {
    await note(request.version)
    return request.version
  }
  const latest = await client.readLatestVersion()
  tools.log.info(`The hub's latest version is ${latest}.`)
  await note(latest)
  if (!request.allowDowngrade) refuseDowngrade(latest, record.facts.previous_version)
  return latest
}
