import assert from 'node:assert/strict'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import type { TestContext } from 'node:test'
import type { DeployError } from '../../src/core/errors.ts'
import {
  createProjectClient,
  type ProjectAccess,
  type ProjectClient,
  type ProjectReportBody,
} from '../../src/project/hub.ts'
import { type Handler, type LoopbackServer, serve } from '../net/loopback-server.ts'
import { createTestedWire } from '../net/tested-wire.ts'

export const TOKEN = 'token-1-of-the-stub-hub'
export const SIGNATURE = Buffer.alloc(64, 7).toString('base64')
export const DEK = Buffer.alloc(32, 9)

/** Routes of the contract, for version 1.0.0 of the project `shop`. */
export const LATEST = 'GET /v1/projects/shop/versions/latest'
export const ARTIFACT = 'GET /v1/projects/shop/artifacts/1.0.0'
export const AUTHORIZE = 'POST /v1/deployments/authorize'
export const SENT_REPORT = 'POST /v1/deployments/report'

/** A report with every field of the contract. */
export const REPORT: ProjectReportBody = {
  project_id: 'shop',
  deployment_id: '0b6f2f6e-43f5-4a4c-9d0c-9a2f3b1c7d10',
  status: 'success',
  version: '1.0.0',
  started_at: '2026-01-02T03:04:05.678Z',
  completed_at: '2026-01-02T03:04:06.678Z',
  plugins: [{ id: 'cart', version: '2.0.0' }],
}

/** A hub's answer on a route: a status and a body, which is sent as JSON unless it is text. */
export type Answer = [status: number, body: unknown, headers?: Record<string, string>]
/** Answers by `METHOD /path`. A list gives one answer after the other and repeats the last one. */
export type Routes = Record<string, Answer | Answer[]>

export interface Call {
  route: string
  authorization: string | undefined
  body: unknown
}

export interface StubHub {
  server: LoopbackServer
  calls: Call[]
}

const GOOD: Routes = {
  'POST /v1/auth': [200, { access_token: TOKEN, expires_in: 3600 }],
  [LATEST]: [200, { version: '1.0.0' }],
  [ARTIFACT]: [200, descriptorWith({})],
  'GET /download': [200, 'sealed'],
  [AUTHORIZE]: [200, { dek: DEK.toString('base64') }],
  [SENT_REPORT]: [201, { deployment_id: 'd' }],
}

/** A hub on loopback that follows the contract, except on `routes`. */
export async function serveHub(t: TestContext, routes: Routes = {}): Promise<StubHub> {
  const answer = answering({ ...GOOD, ...routes })
  return { calls: answer.calls, server: await serve(t, answer.handler) }
}

/** A hub as `serveHub` starts it, with a client. */
export async function withHub(t: TestContext, routes: Routes = {}) {
  const hub = await serveHub(t, routes)
  return { ...hub, client: clientOf(hub.server.url) }
}

/** A handler that answers on these routes, and the calls that the handler has received. */
export function answering(routes: Routes): { calls: Call[]; handler: Handler } {
  const calls: Call[] = []
  const handler = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const route = `${request.method} ${request.url}`
    calls.push({ route, authorization: request.headers.authorization, body: await readBody(request) })
    const nth = calls.filter(call => call.route === route).length - 1
    const [status, body, headers] = nthAnswer(routes[route] ?? [404, { error: 'no such route' }], nth)
    response.writeHead(status, headers).end(typeof body === 'string' ? body : JSON.stringify(body))
  }
  return { calls, handler }
}

/** A client for the project `shop`, with the secrets that it hid. */
export function clientOf(hubUrl: string, more: Partial<ProjectAccess> = {}): ProjectClient & { hidden: string[] } {
  const hidden: string[] = []
  const access = {
    hubUrl,
    projectId: 'shop',
    devkey: 'the devkey',
    secrets: { hide: (secret: string) => hidden.push(secret), know() {} },
    ...more,
  }
  const wires = { wire: createTestedWire(), reportWire: createTestedWire() }
  return { ...createProjectClient(wires, access), hidden }
}

/** The hub's description of an artifact, changed by `more`. */
export function descriptorWith(more: object): object {
  return { download_url: '/download', signature: SIGNATURE, signer_public_key: 'a2V5', ...more }
}

export async function refusalOf(act: () => Promise<unknown>): Promise<DeployError> {
  try {
    await act()
  } catch (error) {
    return error as DeployError
  }
  return assert.fail('nothing was refused')
}

function nthAnswer(answers: Answer | Answer[], nth: number): Answer {
  if (!isList(answers)) return answers
  return answers[Math.min(nth, answers.length - 1)] as Answer
}

function isList(answers: Answer | Answer[]): answers is Answer[] {
  return Array.isArray(answers[0])
}

async function readBody(request: IncomingMessage): Promise<unknown> {
  const body = await text(request)
  return body === '' ? undefined : JSON.parse(body)
}
