import { z } from 'zod'
import { HubError } from '../errors.ts'
import type { Store } from '../store.ts'
import { requireProject } from './access-tokens.ts'
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
export type Authorization = z.infer<typeof authorizationSchema>

/**
 * The DEK of the project's version with this signature. This is where revocation takes effect (contract 4.2): throws
 * HubError 403 for a credential that is unknown, revoked or another project's and for a revoked version, and 404 when
 * no version has the signature.
 */
export function releaseDek(store: Store, projectId: string, request: Authorization): Buffer {
  requireCredential(store, projectId, request.deployment_credential)
  const version = findBySignature(store, projectId, request.artifact_signature)
  if (version === undefined) throw new HubError(404, `No version of the project ${projectId} has this signature.`)
  if (version.revoked_at !== null) {
    throw new HubError(403, `Version ${version.version} of the project ${projectId} was revoked.`)
  }
  return decryptDek(store, version, readEncryptedDek(store, version))
}

function requireCredential(store: Store, projectId: string, value: string): void {
  const credential = useProjectKey(store, 'credential', value)
  if (credential === undefined) throw new HubError(403, 'The deployment credential is unknown.')
  requireProject(credential, projectId, 'deployment credential')
  if (!credential.is_active) throw new HubError(403, `The deployment credential ${credential.prefix}... was revoked.`)
}
