import { spawn, spawnSync } from 'node:child_process'
import { type IncomingHttpHeaders, type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http'
import https from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { type Certificate, makeCertificate } from '../net/loopback-server.ts'

/** Either answers a request and returns true, or returns false and leaves the answer to git. */
export type Interceptor = (request: IncomingMessage, response: ServerResponse) => boolean

export interface GitServer {
  /** `https://127.0.0.1:PORT`; `/name` below it is the repository `name` of the folder. */
  readonly url: string
  readonly host: string
  readonly certificate: Certificate
  readonly requests: { url: string; headers: IncomingHttpHeaders }[]
  intercept: Interceptor | undefined
  close(): Promise<void>
}

const backend = spawnSync('git', ['--exec-path'], { encoding: 'utf8' }).stdout?.trim()
const certificate = makeCertificate()

/** The reason why these tests cannot run here; undefined if they can. */
export function whyNoGitServer(): string | undefined {
  if (!backend) return 'there is no git here'
  return certificate === undefined ? 'there is no openssl here' : undefined
}

/** A real git server: `git http-backend` behind https on loopback, for all repositories of a folder. */
export async function startGitServer(folder: string): Promise<GitServer> {
  if (certificate === undefined) throw new Error('no openssl')
  const sockets = new Set<Duplex>()
  const server = https.createServer(certificate, (request, response) => {
    started.requests.push({ url: request.url ?? '', headers: request.headers })
    if (started.intercept?.(request, response) !== true) serveByGit(folder, request, response)
  })
  server.on('connection', socket => {
    sockets.add(socket)
    socket.on('close', () => sockets.delete(socket))
  })
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve))
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const started: GitServer = {
    url: `https://${host}`,
    host,
    certificate,
    requests: [],
    intercept: undefined,
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise(resolve => server.close(resolve))
    },
  }
  return started
}

/** Speaks as much of CGI as git's program needs. */
function serveByGit(folder: string, request: IncomingMessage, response: ServerResponse): void {
  const { pathname, search } = new URL(request.url ?? '/', 'https://server')
  const protocol = request.headers['git-protocol']
  const child = spawn(`${backend}/git-http-backend`, {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: {
      PATH: process.env['PATH'] ?? '',
      ...{ HOME: folder, GIT_CONFIG_NOSYSTEM: '1', GIT_PROJECT_ROOT: folder, GIT_HTTP_EXPORT_ALL: '1' },
      ...{ REQUEST_METHOD: request.method ?? '', PATH_INFO: decodeURIComponent(pathname) },
      ...{ QUERY_STRING: search.slice(1), CONTENT_TYPE: request.headers['content-type'] ?? '' },
      ...(request.headers['content-encoding'] === 'gzip' ? { HTTP_CONTENT_ENCODING: 'gzip' } : {}),
      ...(typeof protocol === 'string' ? { GIT_PROTOCOL: protocol } : {}),
    },
  })
  request.pipe(child.stdin)
  child.stdin.on('error', () => {})
  response.on('close', () => child.kill())
  let head = Buffer.alloc(0)
  child.stdout.on('data', (piece: Buffer) => {
    if (response.headersSent) return void response.write(piece)
    head = Buffer.concat([head, piece])
    const end = head.indexOf('\r\n\r\n')
    if (end === -1) return
    writeHead(response, head.subarray(0, end).toString())
    response.write(head.subarray(end + 4))
  })
  child.on('close', () => response.end())
}

function writeHead(response: ServerResponse, text: string): void {
  const headers = new Map(text.split('\r\n').map(line => line.split(': ', 2) as [string, string]))
  const status = Number(headers.get('Status')?.slice(0, 3) ?? 200)
  headers.delete('Status')
  response.writeHead(status, STATUS_CODES[status], Object.fromEntries(headers))
}
