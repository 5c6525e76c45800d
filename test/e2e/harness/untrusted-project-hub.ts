import type { IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import type { TestContext } from 'node:test'
import { type Handler, type LoopbackServer, serve } from '../../net/loopback-server.ts'
import type { ProjectStage } from './project-stage.ts'
import { OFFERED_VERSION, projectTar, type SealedOffer, sealTar } from './sealed-offer.ts'
import { type Answer, answerJson } from './untrusted-hub.ts'

/** The calls of the project contract (contract 4.2). */
export type ProjectRoute = 'auth' | 'latest' | 'artifact' | 'download' | 'authorize' | 'report'
export type ProjectAnswers = Record<ProjectRoute, Answer>

export interface ProjectCall {
  route: ProjectRoute
  authorization: string | undefined
  body: unknown
}

export interface UntrustedProjectHub {
  url: string
  /** Every call so far, in order. */
  calls: readonly ProjectCall[]
  /** The routes of those calls. */
  asked(): ProjectRoute[]
  callsTo(route: ProjectRoute): ProjectCall[]
}

/** The access token that each of these hubs gives out. */
export const TOKEN = 'token-of-the-untrusted-hub'
const DOWNLOAD_PATH = '/download'

/** The answers of a hub with this offer, honest except for `answers`. */
export function answersOf(
  stage: ProjectStage,
  offer: SealedOffer,
  answers: Partial<ProjectAnswers> = {},
): ProjectAnswers {
  return {
    auth: answerJson(200, { access_token: TOKEN }),
    latest: answerJson(200, { version: OFFERED_VERSION }),
    artifact: answerJson(200, descriptorOf(stage, offer)),
    download: response => response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(offer.bytes),
    authorize: answerJson(200, { dek: offer.dek.toString('base64') }),
    report: answerJson(201, { deployment_id: 'noted' }),
    ...answers,
  }
}

/** The hub's description of the artifact, changed by `more`; undefined removes a field. */
export function descriptorOf(
  { signerPublicKey }: ProjectStage,
  { signature }: Pick<SealedOffer, 'signature'>,
  more: Record<string, unknown> = {},
): object {
  return { download_url: DOWNLOAD_PATH, signature, signer_public_key: signerPublicKey, ...more }
}

/** A good offer of the stage's publisher. */
export function goodOffer({ signingKey }: ProjectStage): SealedOffer {
  return sealTar(projectTar(), signingKey)
}

/** Serves a hub on loopback with these answers. The hub closes when the test ends. */
export async function serveUntrustedProjectHub(
  t: TestContext,
  answers: ProjectAnswers,
  listen: (t: TestContext, handler: Handler) => Promise<LoopbackServer> = serve,
): Promise<UntrustedProjectHub> {
  const calls: ProjectCall[] = []
  const { url } = await listen(t, async (request, response) => {
    const route = routeOf(request)
    const body = await text(request)
    calls.push({
      route,
      authorization: request.headers.authorization,
      body: body === '' ? undefined : JSON.parse(body),
    })
    answers[route](response, request)
  })
  return {
    url,
    calls,
    asked: () => calls.map(({ route }) => route),
    callsTo: route => calls.filter(call => call.route === route),
  }
}

/** Any other path is a download, because the hub chooses the address of a download. */
function routeOf({ url = '' }: IncomingMessage): ProjectRoute {
  if (url === '/v1/auth') return 'auth'
  if (url === '/v1/deployments/authorize') return 'authorize'
  if (url === '/v1/deployments/report') return 'report'
  if (url.endsWith('/versions/latest')) return 'latest'
  return url.startsWith('/v1/projects/') ? 'artifact' : 'download'
}
