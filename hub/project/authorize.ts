import { z } from 'zod'
import { HubError } from '../errors.ts'
import type { Store } from '../store.ts'
import { refuseOtherProject } from './access-tokens.ts'
import { findBySignature, readEncryptedDek } from './catalogue.ts'
import { decryptDek } from './dek-cipher.ts'
import { base64Schema } from './names.ts'
import { useProjectKey } from './project-keys.ts'

const MAX_CREDENTIAL_CHARS = 512

export const authorizationSchema = z.object({
  deployment_credential: z
    .string()
    .min(1, { error: 'must not be empty' })
    .max(MAX_CREDENTIAL_CHARS, { error: `must have at most ${MAX_CREDENTIAL_CHARS} characters` }),
  artifact_signature: base64Schema(64),
})

/** A request for the DEK of the project's version with this signature. */
export type DekRequest = z.infer<typeof authorizationSchema> & { readonly project_id: string }

/**
 * Releases the DEK of the project's version with this signature. Revocation takes effect here (contract 4.2): throws
 * HubError 403 if the credential is unknown, revoked or for another project, or if the version is revoked. Throws 404
 * if no version has the signature, and 500 as decryptDek does.
 */
export function releaseDek(store: Store, request: DekRequest): Buffer {
  const { project_id } = request
  requireCredential(store, request)
  const version = findBySignature(store, request)
  if (version === undefined) throw new HubError(404, `No version of the project ${project_id} has this signature.`)
  if (version.revoked_at !== null) {
    throw new HubError(403, `Version ${version.version} of the project ${project_id} was revoked.`)
  }
  return decryptDek(store, version, readEncryptedDek(store, version))
}

function requireCredential(store: Store, { project_id, deployment_credential }: DekRequest): void {
  const credential = useProjectKey(store, ['credential'], deployment_credential)
  if (credential === undefined) throw new HubError(403, 'The deployment credential is unknown.')
  refuseOtherProject(credential, project_id)
  if (!credential.is_active) throw new HubError(403, `The deployment credential ${credential.prefix}... was revoked.`)
}
