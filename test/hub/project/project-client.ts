import type { TestContext } from 'node:test'
import { createProjectKey, type Purpose } from '../../../hub/project/project-keys.ts'
import type { SealedProject } from '../../../hub/project/seal.ts'
import type { HubOptions } from '../../../hub/server.ts'
import { type HubUnderTest, runHub } from '../running-hub.ts'
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
