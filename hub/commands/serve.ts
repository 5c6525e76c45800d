import { renewAdminToken } from '../admin-token.ts'
import { HubError, UsageError } from '../errors.ts'
import { isLoopbackHost } from '../loopback.ts'
import { type ListenAddress, type RunningHub, startHub } from '../server.ts'
import { type Command, DATA_OPTION, DATA_USAGE, parseCommandLine, withStore } from './command.ts'

const DEFAULT_PORT = 8787
const MAX_PORT = 65_535

export const serve: Command = {
  summary: 'serves the hub until it is interrupted (the default)',
  usage: `npm run hub -- [serve] [options]

  --port N           the port to listen on, 0 for any free one (default ${DEFAULT_PORT})
  --host H           the address to listen on (default 127.0.0.1)
  --new-admin-token  replaces the admin token, which is shown only once
${DATA_USAGE}

On any other address than a loopback one the fleet page asks for the admin token (as the password of any user).
The hub speaks plain http: put a proxy with TLS before it when it is to be reached from elsewhere.`,
  run: async args => {
    const { values } = parseCommandLine(args, {
      ...DATA_OPTION,
      port: { type: 'string', default: String(DEFAULT_PORT) },
      host: { type: 'string', default: '127.0.0.1' },
      'new-admin-token': { type: 'boolean', default: false },
    })
    const address = { host: values.host, port: parsePort(values.port) }
    const renewed = values['new-admin-token'] ? await withStore(values.data, renewAdminToken) : undefined
    const hub = await startHub({ dataDir: values.data, ...address }).catch(error => {
      throw explainListening(error, address)
    })
    announce({ ...hub, adminToken: renewed ?? hub.adminToken }, values.host)
    await interrupted()
    await hub.close()
  },
}

function parsePort(text: string): number {
  const port = Number(text)
  if (/^\d{1,5}$/.test(text) && port <= MAX_PORT) return port
  throw new UsageError(`The option --port must be a number from 0 to ${MAX_PORT}, found ${JSON.stringify(text)}.`)
}

function explainListening(error: NodeJS.ErrnoException, { host, port }: ListenAddress): Error {
  switch (error.code) {
    case 'EADDRINUSE':
      return new HubError(500, `Port ${port} of ${host} is taken: stop what listens there, or give another --port.`)
    case 'EACCES':
      return new HubError(500, `This user may not listen on port ${port} of ${host}: give a --port above 1023.`)
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new HubError(500, `${host} is no address of this machine: give another --host.`)
    default:
      return error
  }
}

function announce({ url, adminToken }: RunningHub, host: string): void {
  console.log(`The reference hub listens on ${url}`)
  if (adminToken !== undefined) console.log(`Admin token (shown only now): ${adminToken}`)
  if (!isLoopbackHost(host)) console.error('It can be reached from other machines, by plain http: put TLS before it.')
}

function interrupted(): Promise<void> {
  return new Promise(resolve => {
    process.once('SIGINT', () => resolve())
    process.once('SIGTERM', () => resolve())
  })
}
