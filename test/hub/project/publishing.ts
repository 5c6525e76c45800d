import type { SealedRelease } from '../../../hub/project/publish.ts'
import { ADMIN_TOKEN, type HubUnderTest } from '../running-hub.ts'

export const PUBLISH = '/v1/projects/shop/publish'

/** The headers of a publisher: a dev key in X-API-Key, or the admin token. */
export type Sender = Record<string, string>
export const ADMIN: Sender = { Authorization: `Bearer ${ADMIN_TOKEN}` }

/** Sends the form as other clients do. `change` adds fields, replaces them or, with undefined, leaves them out. */
export function sendForm(
  hub: HubUnderTest,
  { bytes, release }: SealedRelease,
  { sender = ADMIN, change = {} }: { sender?: Sender; change?: Record<string, string | undefined> } = {},
): Promise<Response> {
  const { project_id: _, ...fields } = release
  const form = new FormData()
  for (const [name, value] of Object.entries({ project_name: 'Shop', ...fields, ...change }))
    if (value !== undefined) form.append(name, value)
  if (!('artifact' in change)) form.append('artifact', new Blob([new Uint8Array(bytes)]), 'artifact.sealed')
  return fetch(hub.url + PUBLISH, { method: 'POST', headers: sender, body: form })
}

/** Sends the bare file, with its release in headers. */
export function sendRaw(hub: HubUnderTest, { bytes, release }: SealedRelease, headers: Sender = {}): Promise<Response> {
  return fetch(hub.url + PUBLISH, {
    method: 'POST',
    body: new Uint8Array(bytes),
    headers: {
      ...ADMIN,
      'Content-Type': 'application/octet-stream',
      'X-Version': release.version,
      'X-Artifact-Signature': release.signature,
      'X-Signer-Public-Key': release.signer_public_key,
      'X-Dek': release.dek,
      ...headers,
    },
  })
}
