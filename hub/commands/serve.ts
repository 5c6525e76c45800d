import { renewAdminToken } from '../admin-token.ts'
import { HubError, UsageError } from '../errors.ts'
import { isLoopbackHost } from '../http/loopback.ts'
import { type ListenAddress, type RunningHub, startHub } from '../server.ts'
import { type Command, DATA_OPTION, withStore } from './command.ts'
import { parseCommandLine } from './command-line.ts'

const DEFAULT_PORT = 8787
const MAX_PORT = 65_535

export const serve: Command = {
  summary: 'runs the hub until you interrupt it (the default command)',
  usage: `npm run hub -- [serve] [options]

  --port N           the port to listen on, or 0 for any free one (default ${DEFAULT_PORT})
  --host H           the address to listen on (default 127.0.0.1)
  --new-admin-token  replaces the admin token and shows the new one once
  --data DIR         the data folder (default ${DATA_OPTION.data.default})

The hub speaks plain HTTP. If other machines use it, put a TLS proxy in front of it.
On any address but a loopback one, the fleet page asks for the admin token: enter it as the password of any user.`,
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
      return new HubError(500, `This user may not listen on port ${port} of ${host}: choose a --port above 1023.`)
    case 'EADDRNOTAVAIL':
    case 'ENOTFOUND':
      return new HubError(500, `${host} is not an address of this machine: choose another --host.`)
    default:
      return error
  }
}

function announce({ url, adminToken }: RunningHub, host: string): void {
  console.log(`The reference hub listens on ${url}`)
  if (adminToken !== undefined) console.log(`Admin token (save it now, the hub cannot show it again): ${adminToken}`)
  if (!isLoopbackHost(host))
    console.error('Other machines can reach it over plain HTTP: put a TLS proxy in front of it.')
}

function interrupted(): Promise<void> {
  return new Promise(resolve => {
    process.once('SIGINT', () => resolve())
    process.once('SIGTERM', () => resolve())
  })
}
