import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import net from 'node:net'
import { hostname } from 'node:os'
import { Readable } from 'node:stream'
import { describe, it } from 'node:test'
import { HANG_LIMIT_MS, whyLeftToCi } from '../extent.ts'
import {
  makeCertificate,
  serve,
  serveSocket,
  serveTls,
  startConnectProxy,
  useProxyEnvironment,
} from './loopback-server.ts'
import { createTestedWire, get, openPrivateFile } from './tested-wire.ts'

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

const certificate = makeCertificate()

describe('a proxy that the environment names', () => {
  it('carries plain http', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.end('{"a":1}'))
    const answer = await createTestedWire({ allowHttp: true }).requestJson(get(`http://hub.test:${server.port}/`))
    assert.deepEqual([answer.body, proxy.targets], [{ a: 1 }, [`hub.test:${server.port}`]])
    assert.equal(server.requests[0]?.headers.host, `hub.test:${server.port}`)
  })

  const skip = certificate === undefined ? 'openssl is not installed' : false
  it('carries https, end to end', { skip }, async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { https_proxy: proxy.url })
    const server = await serveTls(t, certificate ?? {}, (_, response) => response.end('{"a":1}'))
    const wire = createTestedWire({ ca: certificate?.cert ?? '' })
    const answer = await wire.requestJson(get(`https://hub.test:${server.port}/`))
    assert.deepEqual([answer.body, proxy.targets], [{ a: 1 }, [`hub.test:${server.port}`]])
  })

  it('carries plain http over TLS, and repeats no request that may have arrived', { skip }, async t => {
    const proxy = await startConnectProxy(t, 'works', certificate)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.destroy())
    const wire = createTestedWire({ allowHttp: true, ca: certificate?.cert ?? '' })
    const post = {
      ...get(`http://hub.test:${server.port}/`),
      method: 'POST',
      body: {},
      retry: 'connection-only',
    } as const
    await assert.rejects(wire.requestJson(post), { code: 'network', sent: true })
    assert.equal(server.requests.length, 1)
  })

  it('carries a download', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.end(Buffer.alloc(3_000_000)))
    const wire = createTestedWire({ allowHttp: true })
    const request = {
      url: `http://hub.test:${server.port}/`,
      fd: openPrivateFile(t).fd,
      maxBytes: 4_000_000,
      timeoutMs: 600_000,
    }
    const answer = await wire.download(request)
    assert.ok(answer.ok && answer.size === 3_000_000)
  })

  it('gets its own credentials, which the server does not get', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url.replace('//', '//user:p%40ss@') })
    const server = await serve(t, (_, response) => response.end())
    await createTestedWire({ allowHttp: true }).requestJson(get(`http://hub.test:${server.port}/`))
    assert.deepEqual(proxy.authorizations, [`Basic ${Buffer.from('user:p@ss').toString('base64')}`])
    assert.equal(server.requests[0]?.headers['proxy-authorization'], undefined)
  })

  it('is not used for loopback addresses', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const server = await serve(t, (_, response) => response.end())
    await createTestedWire().requestJson(get(server.url))
    assert.deepEqual(proxy.targets, [])
  })

  it('is not used for hosts that no_proxy names', async t => {
    const proxy = await startConnectProxy(t)
    useProxyEnvironment(t, { http_proxy: proxy.url, no_proxy: '.test' })
    const unresolvable = `http://${'a'.repeat(64)}.test/`
    await assert.rejects(createTestedWire({ allowHttp: true }).requestJson(get(unresolvable)), { code: 'network' })
    assert.deepEqual(proxy.targets, [])
  })

  it('is asked for port 443 when an https URL names none', async t => {
    const proxy = await startConnectProxy(t, 'refuses')
    useProxyEnvironment(t, { https_proxy: proxy.url })
    await assert.rejects(createTestedWire().requestJson(get('https://hub.test/')), { code: 'network', sent: false })
    assert.deepEqual(proxy.targets, ['hub.test:443'])
  })

  it('is reported with its answer when it refuses', async t => {
    const proxy = await startConnectProxy(t, 'refuses')
    useProxyEnvironment(t, { http_proxy: proxy.url })
    const wire = createTestedWire({ allowHttp: true })
    const call = wire.requestJson({ ...get('http://hub.test/'), retry: 'connection-only' })
    await assert.rejects(call, { code: 'network', sent: false, message: /proxy that http_proxy names .*HTTP 403/ })
    assert.equal(proxy.targets.length, 4)
  })

  it('gets credentials that it refuses only once', async t => {
    const proxy = await startConnectProxy(t, 'wants credentials')
    useProxyEnvironment(t, { http_proxy: proxy.url.replace('//', '//user:wrong@') })
    const wire = createTestedWire({ allowHttp: true })
    const expected = {
      name: 'ArtifactError',
      code: 'network',
      message: /http_proxy names refused its user name and password/,
    }
    for (const retry of ['transient', 'never'] as const)
      await assert.rejects(wire.requestJson({ ...get('http://hub.test/'), retry }), expected)
    assert.equal(proxy.targets.length, 1)
  })

  it('is never bypassed because its variable cannot be read', async t => {
    const server = await serve(t, (_, response) => response.end())
    useProxyEnvironment(t, { http_proxy: 'http://user:pa#ss@127.0.0.1:9' })
    const call = createTestedWire({ allowHttp: true }).requestJson(get(`http://${hostname()}:${server.port}/`))
    await assert.rejects(call, {
      name: 'ConfigError',
      code: 'invalid_input',
      message: /variable http_proxy is not of the form/,
    })
    assert.deepEqual(server.requests, [])
  })
})
