import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'
import { Readable } from 'node:stream'
import { describe, it } from 'node:test'
import { whyLeftToCi } from '../extent.ts'
import { HANG_LIMIT_MS } from '../hang-limit.ts'
import { startConnectProxy } from './connect-proxy.ts'
import { serve, serveSocket } from './loopback-server.ts'
import { createTestedWire, get } from './tested-wire.ts'

const ONLY_IN_CI = whyLeftToCi()

const WIRE = new URL('../../src/net/wire.ts', import.meta.url).href
const ANSWER = 'HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}'

interface Ended {
  code: number | null
  output: string
}

/** Runs a program that can use `wire` and `get`. Kills the program if it hangs; in that case, the exit code is null. */
async function runProgram(body: string, env: Record<string, string> = {}): Promise<Ended> {
  const program = `
    import { openSync } from 'node:fs'
    import { createWire } from ${JSON.stringify(WIRE)}
    const wire = createWire({ allowHttp: true, userAgent: 'test', log: () => {}, timeouts: JSON.parse(process.env.TIMEOUTS ?? '{}') })
    const get = url => ({ method: 'GET', url, retry: 'never', timeoutMs: 600_000 })
    ${body}`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
    env: { PATH: process.env['PATH'] ?? '', ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: HANG_LIMIT_MS,
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', text => {
    output += text
  })
  const [code] = await once(child, 'close')
  return { code, output }
}

describe('createWire', () => {
  it('uses a separate connection for each request, and says so', async t => {
    const server = await serve(t, (_, response) => response.end('{}'))
    const wire = createTestedWire()
    await wire.requestJson(get(server.url))
    await wire.requestJson(get(server.url))
    assert.equal(server.connections(), 2)
    assert.deepEqual(
      server.requests.map(request => request.headers.connection),
      ['close', 'close'],
    )
  })

  it('connects to IPv6 addresses', async t => {
    const server = net.createServer(socket => socket.end(ANSWER))
    server.listen(0, '::1')
    const listening = await Promise.race([
      once(server, 'listening').then(() => true),
      once(server, 'error').then(() => false),
    ])
    if (!listening) return t.skip('there is no IPv6 here')
    t.after(() => server.close())
    const { port } = server.address() as net.AddressInfo
    assert.equal((await createTestedWire().requestJson(get(`http://[::1]:${port}/`))).status, 200)
  })
})

describe('the process', () => {
  it('ends after an answer, even if the server keeps the connection open', async t => {
    const server = await serveSocket(t, socket => socket.once('data', () => socket.write(ANSWER)))
    const ended = await runProgram(`console.log((await wire.requestJson(get(${JSON.stringify(server.url)}))).status)`)
    assert.deepEqual(ended, { code: 0, output: '200\n' })
  })

  it('ends after an answer whose body was not read', async t => {
    const server = await serveSocket(t, socket => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n'))
    const url = JSON.stringify(server.url)
    const ended = await runProgram(`
      const download = wire.download({ url: ${url}, fd: openSync('/dev/null', 'w'), maxBytes: 1, timeoutMs: 600_000 })
      console.log(await download.catch(error => error.code))`)
    assert.deepEqual(ended, { code: 0, output: 'archive_too_large\n' })
  })

  it('ends after an answer that switches to another protocol', async t => {
    const head = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n'
    const server = await serveSocket(t, socket => socket.once('data', () => socket.write(head)))
    const ended = await runProgram(
      `console.log(await wire.requestJson(get(${JSON.stringify(server.url)})).catch(error => error.code))`,
    )
    assert.deepEqual(ended, { code: 0, output: 'bad_response\n' })
  })

  it('ends after a timeout', async t => {
    const server = await serveSocket(t, () => {})
    const ended = await runProgram(
      `console.log(await wire.requestJson(get(${JSON.stringify(server.url)})).catch(error => error.code))`,
      {
        TIMEOUTS: '{"idleMs":100}',
      },
    )
    assert.deepEqual(ended, { code: 0, output: 'timeout\n' })
  })

  it('ends after a proxy has stalled', async t => {
    const proxy = await startConnectProxy(t, () => {})
    const ended = await runProgram(
      `console.log(await wire.requestJson(get('https://hub.test/')).catch(error => error.code))`,
      {
        https_proxy: proxy.url,
        TIMEOUTS: '{"connectMs":200}',
      },
    )
    assert.deepEqual(ended, { code: 0, output: 'timeout\n' })
  })

  it('ends after a TLS handshake through a proxy has stalled', async t => {
    const proxy = await startConnectProxy(t)
    const server = await serveSocket(t, () => {})
    const ended = await runProgram(
      `console.log(await wire.requestJson(get('https://hub.test:${server.port}/')).catch(error => error.code))`,
      { https_proxy: proxy.url, TIMEOUTS: '{"connectMs":200}' },
    )
    assert.deepEqual(ended, { code: 0, output: 'timeout\n' })
  })

  it('needs less than 256 MiB of memory for a download of 384 MiB', { skip: ONLY_IN_CI }, async t => {
    const block = Buffer.alloc(1024 * 1024)
    const server = await serve(t, (_, response) => {
      Readable.from(Array.from({ length: 384 }, () => block)).pipe(response)
    })
    const ended = await runProgram(`
      const { mkdtempSync, rmSync } = await import('node:fs')
      const { tmpdir } = await import('node:os')
      const folder = mkdtempSync(tmpdir() + '/hub-deploy-test-')
      const fd = openSync(folder + '/artifact', 'wx+')
      rmSync(folder, { recursive: true })
      const { size } = await wire.download({ url: ${JSON.stringify(server.url)}, fd, maxBytes: 2 ** 40, timeoutMs: 600_000 })
      console.log(JSON.stringify([size, process.resourceUsage().maxRSS]))`)
    const [size, maxRssKib] = JSON.parse(ended.output)
    assert.equal(size, 384 * block.length)
    assert.ok(maxRssKib < 256 * 1024, `${maxRssKib} KiB`)
  })
})
