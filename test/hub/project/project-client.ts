import type { TestContext } from 'node:test'
import { createProjectKey, type Purpose } from '../../../hub/project/keys.ts'
import type { SealedRelease } from '../../../hub/project/publish.ts'
import type { SealedProject } from '../../../hub/project/seal.ts'
import type { HubOptions } from '../../../hub/server.ts'
import { ADMIN_TOKEN, type HubUnderTest, runHub } from '../running-hub.ts'
import { publishShop } from './project-source.ts'

/** A running hub that serves version 1.0.0 of the project `shop`, with keys to the project. */
export interface ShopHub {
  readonly hub: HubUnderTest
  readonly sealed: SealedProject
  readonly token: string
  readonly credential: string
}

export async function runShopHub(t: TestContext, options: Partial<HubOptions> = {}): Promise<ShopHub> {
  const hub = await runHub(t, options)
  const sealed = await publishShop(t, hub.store, '1.0.0')
  const token = await logIn(hub, newValue(hub, 'devkey'))
  return { hub, sealed, token, credential: newValue(hub, 'credential') }
}

/** Creates a dev key or deployment credential. */
export function newValue(hub: HubUnderTest, purpose: Purpose, project_id = 'shop'): string {
  return createProjectKey(hub.store, { project_id, purpose, name: 'test' }).value
}

export async function logIn(hub: HubUnderTest, xdevkey: string, project_id = 'shop'): Promise<string> {
  const response = await hub.call('/v1/auth', { json: { xdevkey, project_id } })
  return ((await response.json()) as { access_token: string }).access_token
}

export function authorize({ hub, sealed, token, credential }: ShopHub, change: object = {}): Promise<Response> {
  const json = { deployment_credential: credential, artifact_signature: sealed.release.signature, ...change }
  return hub.call('/v1/deployments/authorize', { bearer: token, json })
}

export const REPORT = {
  project_id: 'shop',
  deployment_id: '6b1c6a2e-b8b7-45b8-b499-7554d54b9309',
  status: 'success',
  version: '1.0.0',
  started_at: '2026-01-02T03:04:05.000Z',
  completed_at: '2026-01-02T03:04:09.000Z',
  plugins: [{ id: 'cart', version: '1.10' }],
} as const

export function report({ hub, token }: ShopHub, change: object = {}): Promise<Response> {
  return hub.call('/v1/deployments/report', { bearer: token, json: { ...REPORT, ...change } })
}

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
