import { createReadStream, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pipeline } from 'node:stream/promises'
import { type Artifact, type SealedArtifact, SLUG, type ZipArtifact } from './workloads.ts'

// This program prints its URL and serves a catalogue (JSON, from base path to artifact) until its standard input ends.
// Each base path is a hub whose latest version is the artifact of that path. The program does as little as possible,
// because the bench measures the contenders, not the hub.

const CHUNK_BYTES = 1024 * 1024

const catalogue: Record<string, Artifact> = JSON.parse(readFileSync(process.argv[2] ?? '', 'utf8'))
const server = createServer((request, response) => {
  answer(request, response).catch(() => response.destroy())
})
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo
  process.stdout.write(`http://127.0.0.1:${port}\n`)
})

process.stdin.resume().once('end', () => process.exit())

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '/', `http://${request.headers.host}`)
  const [, base = '', ...parts] = url.pathname.split('/')
  const artifact = catalogue[base]
  const call = { route: parts.join('/'), url: `${url.origin}/${base}`, response }
  await request.resume().toArray()
  if (artifact === undefined) sendJson(response, 404, { error: 'not found' })
  else if (artifact.format === 'zip') await answerMarketplace(artifact, call)
  else await answerProject(artifact, call)
}

interface Call {
  /** The path below the base path. */
  readonly route: string
  /** The URL of the base path. */
  readonly url: string
  readonly response: ServerResponse
}

async function answerMarketplace(artifact: ZipArtifact, { route, response }: Call): Promise<void> {
  switch (route) {
    case `plugins/${SLUG}`:
      return sendJson(response, 200, { latest_version: artifact.version })
    case `plugins/${SLUG}/install`:
      return sendFile(response, artifact, { 'X-Signature': artifact.signature })
    case 'deployments/report':
      return sendJson(response, 201, {})
    default:
      return sendJson(response, 404, { error: 'not found' })
  }
}

async function answerProject(artifact: SealedArtifact, { route, url, response }: Call): Promise<void> {
  switch (route) {
    case 'v1/auth':
      return sendJson(response, 200, { access_token: 'bench-access-token' })
    case `v1/projects/${SLUG}/versions/latest`:
      return sendJson(response, 200, { version: artifact.version })
    case `v1/projects/${SLUG}/artifacts/${artifact.version}`:
      return sendJson(response, 200, {
        download_url: `${url}/blob`,
        signature: artifact.signature,
        signer_public_key: artifact.signerPublicKey,
      })
    case 'blob':
      return sendFile(response, artifact, {})
    case 'v1/deployments/authorize':
      return sendJson(response, 200, { dek: artifact.dek })
    case 'v1/deployments/report':
      return sendJson(response, 201, { deployment_id: '00000000-0000-4000-8000-000000000000' })
    default:
      return sendJson(response, 404, { error: 'not found' })
  }
}

function sendJson(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body))
}

async function sendFile(response: ServerResponse, { path, size }: Artifact, headers: Record<string, string>) {
  response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': size, ...headers })
  await pipeline(createReadStream(path, { highWaterMark: CHUNK_BYTES }), response)
}
