import { createCipheriv, hash, type KeyObject, randomBytes, sign } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { text } from 'node:stream/consumers'
import type { TestContext } from 'node:test'
import { zstdCompressSync } from 'node:zlib'
import { treeDigest } from '../../../src/core/trust/tree-digest.ts'
import { buildTar, file, type TarItem } from '../../archives/tar-builder.ts'
import { type Handler, type LoopbackServer, serve } from '../../net/loopback-server.ts'
import { PROJECT_ID, type ProjectStage, projectFiles } from './project-stage.ts'
import { type Answer, answerJson } from './untrusted-hub.ts'

/** The calls of the project contract (contract 4.2). */
export type ProjectRoute = 'auth' | 'latest' | 'artifact' | 'download' | 'authorize' | 'report'
export type ProjectAnswers = Record<ProjectRoute, Answer>

interface ProjectCall {
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

export const OFFERED_VERSION = '2.0.0'

/** The offer of a hub: a sealed file, its signature and its key. */
export interface SealedOffer {
  bytes: Buffer
  /** In base64. */
  signature: string
  dek: Buffer
}

/** Seals any bytes under a new key: 12 bytes of nonce, AES-256-GCM, 16 bytes of tag; Ed25519 signs all of it. */
export function sealBytes(plain: Buffer, signingKey: KeyObject): SealedOffer {
  const [dek, nonce] = [randomBytes(32), randomBytes(12)]
  const cipher = createCipheriv('aes-256-gcm', dek, nonce, { authTagLength: 16 })
  const bytes = Buffer.concat([nonce, cipher.update(plain), cipher.final(), cipher.getAuthTag()])
  return { dek, ...signed(bytes, signingKey) }
}

export function sealTar(tar: Buffer, signingKey: KeyObject): SealedOffer {
  return sealBytes(zstdCompressSync(tar), signingKey)
}

export function signed(bytes: Buffer, signingKey: KeyObject): Pick<SealedOffer, 'bytes' | 'signature'> {
  return { bytes, signature: sign(null, bytes, signingKey).toString('base64') }
}

export interface ProjectChanges {
  files?: Record<string, string>
  /** Fields that replace those of the manifest; undefined removes a field. */
  manifest?: Record<string, unknown>
  /** Items of the tar after all others. */
  more?: TarItem[]
}

/** The tar of a small project that is correct in every way, except for the changes. */
export function projectTar({ files = {}, manifest = {}, more = [] }: ProjectChanges = {}): Buffer {
  const all = projectFiles(OFFERED_VERSION, files)
  const items = Object.entries(all).map(([path, text]) => file(path, text))
  return buildTar([file('manifest.json', JSON.stringify({ ...manifestOf(all), ...manifest })), ...items, ...more])
}

function manifestOf(files: Record<string, string>): Record<string, unknown> {
  const digested = Object.entries(files).map(([path, text]) => ({ path, sha256: hash('sha256', text) }))
  const sha256Of = (folder: string): string => {
    const below = digested.filter(({ path }) => path.startsWith(`${folder}/`))
    return treeDigest(below.map(({ path, sha256 }) => ({ path: path.slice(folder.length + 1), sha256 })))
  }
  return {
    format_version: '1',
    project_id: PROJECT_ID,
    project_name: 'The shop',
    version: OFFERED_VERSION,
    built_at: '2026-01-02T03:04:05Z',
    plugins: [
      { id: 'cart', version: OFFERED_VERSION, sha256: sha256Of('plugins/cart') },
      { id: 'till', version: '7.0.0', sha256: sha256Of('plugins/till') },
    ],
    extensions: [{ id: 'mailer', sha256: sha256Of('extensions/mailer') }],
    content_sha256: treeDigest(digested),
  }
}
