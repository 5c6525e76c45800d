import { isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import { renewAdminToken } from '../access.ts'
import { HubError, UsageError } from '../errors.ts'
import { isLoopbackHost } from '../http/connections.ts'
import { readTls, serverNames, type TlsCredentials, type TlsFiles } from '../http/tls.ts'
import { type ListenAddress, type RunningHub, startHub } from '../server.ts'
import { type Command, DATA_DEFAULT, DATA_OPTION, withStore } from './command.ts'
import { parseCommandLine, requireOption } from './command-line.ts'

const DEFAULT_PORT = 8787
const MAX_PORT = 65_535
/** Addresses that make a server listen on every address of its machine. No other machine can connect to them. */
const EVERY_ADDRESS = ['0.0.0.0', '::']

export const SERVE_OPTIONS = {
  ...DATA_OPTION,
  port: { type: 'string', default: String(DEFAULT_PORT) },
  host: { type: 'string', default: '127.0.0.1' },
  'tls-cert': { type: 'string' },
  'tls-key': { type: 'string' },
  'behind-proxy': { type: 'boolean', default: false },
  'new-admin-token': { type: 'boolean', default: false },
} as const

export const serve: Command = {
  summary: 'runs the hub until you interrupt it (the default command)',
  usage: `npm run hub -- [serve] [options]

  --port N           the port to listen on, or 0 for any free one (default ${DEFAULT_PORT})
  --host H           the address to listen on (default 127.0.0.1)
  --tls-cert FILE    serves HTTPS with this certificate and its chain (PEM)
  --tls-key FILE     the certificate's private key (PEM), which other users must not be able to read
  --behind-proxy     a proxy on this machine forwards requests from other machines
  --new-admin-token  replaces the admin token and shows the new one once
  --data DIR         the data folder (default ${DATA_DEFAULT})

If other machines use the hub, give it a certificate or put a TLS proxy in front of it (docs/hub.md). After you renew
the certificate, send SIGHUP: the hub reads both files again. On any address but a loopback one, and behind a proxy, the
page asks for the admin token: enter it as the password, with any user name.`,
  run: async args => {
    const { values } = parseCommandLine(args, SERVE_OPTIONS)
    const address = { host: values.host, port: parsePort(values.port) }
    const files = parseTlsFiles(values)
    const tls = files === undefined ? {} : { tls: readTlsFiles(files) }
    const renewed = values['new-admin-token'] ? await withStore(values.data, renewAdminToken) : undefined
    const options = { dataDir: values.data, behindProxy: values['behind-proxy'], ...address, ...tls }
    const hub = await startHub(options).catch(error => {
      throw explainListening(error, address)
    })
    const stopRenewing = files === undefined ? () => {} : renewOnSignal(hub, files)
    announce({ ...hub, adminToken: renewed ?? hub.adminToken }, { host: values.host, ...tls })
    await interrupted()
    stopRenewing()
    await hub.close()
  },
}

function parseTlsFiles(values: { 'tls-cert'?: string | undefined; 'tls-key'?: string | undefined }) {
  const { 'tls-cert': certFile, 'tls-key': keyFile } = values
  if (certFile === undefined && keyFile === undefined) return undefined
  return { certFile: requireOption('tls-cert', certFile), keyFile: requireOption('tls-key', keyFile) }
}

function readTlsFiles(files: TlsFiles): TlsCredentials {
  const { credentials, warnings } = readTls(files, Date.now())
  for (const warning of warnings) console.error(warning)
  return credentials
}

/**
 * Reads the files again on SIGHUP, until the returned function is called. Keeps the current certificate if the new
 * files cannot be used.
 */
function renewOnSignal(hub: RunningHub, files: TlsFiles): () => void {
  const renew = () => {
    try {
      hub.renewTls(readTlsFiles(files))
      console.log(`New connections use the certificate ${files.certFile}.`)
    } catch (error) {
      console.error(`${(error as Error).message} The hub keeps its current certificate.`)
    }
  }
  process.on('SIGHUP', renew)
  return () => process.off('SIGHUP', renew)
}

function parsePort(text: string): number {
  const port = Number(text)
  if (/^\d{1,5}$/.test(text) && port <= MAX_PORT) return port
  throw new UsageError(`The option --port must be a number from 0 to ${MAX_PORT}, not ${JSON.stringify(text)}.`)
}

function explainListening(error: NodeJS.ErrnoException, { host, port }: ListenAddress): Error {
  switch (error.code) {
    case 'EADDRINUSE':
      return new HubError(
        500,
        `Port ${port} of ${host} is in use: stop the program that listens there, or choose another --port.`,
      )
    case 'EACCES':
      return new HubError(
        500,
        `This user is not allowed to listen on port ${port} of ${host}: choose a --port above 1023.`,
      )
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new HubError(500, `${host} is not an address of this machine: choose another --host.`)
    default:
      return error
  }
}

interface Served {
  /** The host given with --host. */
  readonly host: string
  readonly tls?: TlsCredentials
}

function announce({ url, adminToken }: RunningHub, { host, tls }: Served): void {
  console.log(`The reference hub listens on ${url}`)
  if (EVERY_ADDRESS.includes(host)) announceToOthers(url, tls)
  if (adminToken !== undefined) console.log(`Admin token (save it now: the hub cannot show it again): ${adminToken}`)
  if (!isLoopbackHost(host) && url.startsWith('http:'))
    console.error(
      'Other machines can reach the hub over plain HTTP: give it a certificate with --tls-cert, or put a TLS proxy in front of it.',
    )
}

/** Guesses the URL: certificates contain the names that they are for, and most networks know a machine by its name. */
function announceToOthers(url: string, tls: TlsCredentials | undefined): void {
  const names = tls === undefined ? [] : serverNames(tls)
  const others = names.filter(name => !isLoopbackHost(name))
  if (names.length > 0 && others.length === 0)
    console.error(
      `The certificate is only for ${names.join(', ')}, so other machines refuse it: use a certificate for the name by which they reach this hub.`,
    )
  else
    console.log(
      `Other machines reach the hub at ${urlUnder(url, others.find(name => !name.includes('*')) ?? hostname())}`,
    )
}

function urlUnder(url: string, name: string): string {
  const { protocol, port } = new URL(url)
  return `${protocol}//${isIPv6(name) ? `[${name}]` : name}${port === '' ? '' : `:${port}`}`
}

function interrupted(): Promise<void> {
  return new Promise(resolve => {
    process.once('SIGINT', () => resolve())
    process.once('SIGTERM', () => resolve())
  })
}
