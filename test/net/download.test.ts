import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { createHash, createHmac, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, existsSync, openSync, statSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { promisify } from 'node:util'
import { gzipSync } from 'node:zlib'
import { writeChunkSync } from '../../src/net/download.ts'
import { temporaryDirectory } from '../folders.ts'
import { serve, serveSocket } from './loopback-server.ts'
import { createTestedWire, openPrivateFile } from './tested-wire.ts'

const MEBIBYTE = 1024 * 1024
const LIMITS = { maxBytes: 16 * MEBIBYTE, timeoutMs: 600_000 }

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex')
}

/** Fetches the hub's `/`, which redirects to `/own`, to storage, and back or not, each with its own signature. */
async function redirectedSignature(t: TestContext, signatures: Record<string, string | string[]>, back: boolean) {
  const head = (path: string) => ({ ...(signatures[path] && { 'x-signature': signatures[path] }) })
  const storage = await serve(t, (_, response) => {
    if (back) response.writeHead(302, { ...head('storage'), location: `${hub.url}/back` }).end()
    else response.writeHead(200, head('storage')).end('bytes')
  })
  const hub = await serve(t, ({ url }, response) => {
    if (url === '/back') response.writeHead(200, head('back')).end('bytes')
    else if (url === '/own') response.writeHead(302, { ...head('own'), location: storage.url }).end()
    else response.writeHead(302, { ...head('first'), location: '/own' }).end()
  })
  const request = { url: `${hub.url}/`, originHeaders: ['x-signature'], fd: openPrivateFile(t).fd, ...LIMITS }
  return (await createTestedWire().download(request)).headers['x-signature']
}

describe('the signature of a download that is redirected', () => {
  const cases: [name: string, sent: Record<string, string | string[]>, back: boolean, found: string | undefined][] = [
    ["is that of the hub's redirect", { first: 'a' }, false, 'a'],
    ['is the last that the hub sent', { first: 'a', own: 'b', back: 'c' }, true, 'c'],
    ["is the hub's, even if storage sends another one later", { own: 'b', storage: 'x' }, false, 'b'],
    ["is storage's, if the hub sent none", { storage: 'x' }, false, 'x'],
    ["is storage's redirect's, if nobody else sent one", { storage: 'x' }, true, 'x'],
    ['is both values of a header that was sent twice, so it has no valid form', { own: ['b', 'c'] }, false, 'b, c'],
    ['is absent if nobody sent one', {}, false, undefined],
  ]
  for (const [name, sent, back, found] of cases)
    it(name, async t => assert.equal(await redirectedSignature(t, sent, back), found))
})

describe('download', () => {
  for (const size of [0, 1, 65_536, MEBIBYTE + 1, 5_000_000]) {
    it(`stores ${size} bytes with their digests`, async t => {
      const bytes = randomBytes(size)
      const server = await serve(t, (_, response) => response.writeHead(200, { 'X-Signature': 's' }).end(bytes))
      const file = openPrivateFile(t)
      const answer = await createTestedWire().download({
        url: server.url,
        fd: file.fd,
        hmacSecret: 'schlüssel',
        ...LIMITS,
      })
      assert.ok(answer.ok)
      assert.deepEqual([answer.size, answer.sha256, answer.headers['x-signature']], [size, sha256(bytes), 's'])
      assert.deepEqual(answer.hmacSha256, createHmac('sha256', Buffer.from('schlüssel', 'utf8')).update(bytes).digest())
      assert.ok(file.read().equals(bytes))
    })
  }

  it('computes no HMAC without a secret, and refuses an empty one', async t => {
    const server = await serve(t, (_, response) => response.end('zip'))
    const { fd } = openPrivateFile(t)
    const answer = await createTestedWire().download({ url: server.url, fd, ...LIMITS })
    assert.ok(answer.ok && !('hmacSha256' in answer))
    const unsigned = createTestedWire().download({ url: server.url, fd, hmacSecret: '', ...LIMITS })
    await assert.rejects(unsigned, { name: 'ConfigError', code: 'invalid_input' })
  })

  it('reports its progress', async t => {
    const server = await serve(t, (_, response) =>
      response.writeHead(200, { 'Content-Length': 2_000_000 }).end(randomBytes(2_000_000)),
    )
    const progress: [number, number | undefined][] = []
    const onProgress = (received: number, total: number | undefined) => progress.push([received, total])
    await createTestedWire().download({ url: server.url, fd: openPrivateFile(t).fd, onProgress, ...LIMITS })
    assert.ok(progress.length > 1)
    assert.deepEqual(progress.at(-1), [2_000_000, 2_000_000])
  })

  it('accepts a body of undeclared length', async t => {
    const server = await serveSocket(t, socket => socket.once('data', () => socket.end('HTTP/1.1 200 OK\r\n\r\nzip')))
    const file = openPrivateFile(t)
    const answer = await createTestedWire().download({ url: server.url, fd: file.fd, ...LIMITS })
    assert.deepEqual([answer.ok, file.read().toString()], [true, 'zip'])
  })

  it('replaces the content of the file, even after a longer failed attempt', async t => {
    let breakOff = () => {}
    const server = await serve(t, (request, response, nth) => {
      if (nth === 2) {
        response.end('short')
        return
      }
      response.writeHead(200, { 'Content-Length': 9_000_000 }).write(Buffer.alloc(3_000_000, 'x'))
      breakOff = () => request.socket.destroy()
    })
    const onProgress = (received: number) => received > 2_500_000 && breakOff()
    const file = openPrivateFile(t)
    writeSync(file.fd, 'y'.repeat(100))
    const answer = await createTestedWire().download({ url: server.url, fd: file.fd, onProgress, ...LIMITS })
    assert.ok(answer.ok)
    assert.deepEqual([answer.attempts, answer.size, answer.sha256], [2, 5, sha256(Buffer.from('short'))])
    assert.equal(file.read().toString(), 'short')
  })

  const broken: [name: string, destroy: 'destroy' | 'resetAndDestroy' | 'end'][] = [
    ['is cut short', 'end'],
    ['is closed', 'destroy'],
    ['is reset', 'resetAndDestroy'],
  ]
  for (const [name, how] of broken) {
    it(`throws network when every attempt's body ${name}`, async t => {
      let onProgress = () => {}
      const server = await serveSocket(t, socket => {
        onProgress = () => socket[how]()
        socket.write(`HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n${'x'.repeat(500)}`)
      })
      const wire = createTestedWire()
      const request = { url: server.url, fd: openPrivateFile(t).fd, onProgress: () => onProgress(), ...LIMITS }
      await assert.rejects(wire.download(request), { name: 'ArtifactError', code: 'network' })
      assert.deepEqual([server.connections(), wire.lines.length], [4, 3])
    })
  }

  it('refuses a Content-Length above the limit before it reads or writes', async t => {
    const server = await serveSocket(t, socket => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n'))
    const file = openPrivateFile(t)
    writeSync(file.fd, 'untouched')
    const call = createTestedWire().download({ url: server.url, fd: file.fd, ...LIMITS, maxBytes: 100 })
    await assert.rejects(call, {
      name: 'ArchiveError',
      code: 'archive_too_large',
      message: /100.*max-artifact-bytes|max-artifact-bytes.*100/,
    })
    assert.deepEqual([server.connections(), file.read().toString()], [1, 'untouched'])
  })

  it('does not advise raising max-artifact-bytes when that cannot help', async t => {
    const server = await serve(t, (_, response) => response.end('x'.repeat(101)))
    const request = { url: server.url, fd: openPrivateFile(t).fd, ...LIMITS, maxBytes: 100, isFixedMax: true }
    await assert.rejects(createTestedWire().download(request), {
      code: 'archive_too_large',
      message: /^(?!.*max-artifact-bytes).*at least 101 bytes, more than the 100 /,
    })
  })

  it('refuses an endless body of undeclared length', async t => {
    const server = await serve(t, (_, response) => {
      const timer = setInterval(() => response.write(Buffer.alloc(100_000)), 1)
      response.on('close', () => clearInterval(timer))
    })
    const file = openPrivateFile(t)
    const call = createTestedWire().download({ url: server.url, fd: file.fd, ...LIMITS, maxBytes: MEBIBYTE })
    await assert.rejects(call, { name: 'ArchiveError', code: 'archive_too_large' })
    assert.ok(file.read().length <= MEBIBYTE)
  })

  it('accepts exactly as many bytes as allowed', async t => {
    const server = await serve(t, (_, response) => response.end('x'.repeat(100)))
    const answer = await createTestedWire().download({
      url: server.url,
      fd: openPrivateFile(t).fd,
      ...LIMITS,
      maxBytes: 100,
    })
    assert.equal(answer.ok, true)
  })

  it('refuses an encoded body, because the signature covers the exact bytes', async t => {
    const server = await serve(t, (_, response) =>
      response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync('zip')),
    )
    const call = createTestedWire().download({ url: server.url, fd: openPrivateFile(t).fd, ...LIMITS })
    await assert.rejects(call, { name: 'ArtifactError', code: 'bad_response' })
    assert.equal(server.requests[0]?.headers['accept-encoding'], 'identity')
  })

  it('accepts the encoding aws-chunked, which storage keeps from an upload, but not with another one', async t => {
    const encodings = ['aws-chunked', 'AWS-Chunked, identity', 'gzip, aws-chunked', 'x\u001b[2Jy']
    const server = await serve(t, ({ url }, response) =>
      response.writeHead(200, { 'content-encoding': encodings[Number(url?.slice(1))] ?? '' }).end('bytes'),
    )
    const fetch = (at: number) =>
      createTestedWire().download({ url: `${server.url}/${at}`, fd: openPrivateFile(t).fd, ...LIMITS })
    for (const at of [0, 1]) assert.equal((await fetch(at)).status, 200)
    await assert.rejects(fetch(2), {
      code: 'bad_response',
      message: /an encoded body \(Content-Encoding: gzip, aws-chunked\)/,
    })
  })

  it('accepts the identity encoding', async t => {
    const server = await serve(t, (_, response) =>
      response.writeHead(200, { 'Content-Encoding': 'Identity' }).end('zip'),
    )
    assert.equal(
      (await createTestedWire().download({ url: server.url, fd: openPrivateFile(t).fd, ...LIMITS })).ok,
      true,
    )
  })

  for (const status of [201, 204, 206]) {
    it(`refuses ${status} for a file`, async t => {
      const server = await serve(t, (_, response) => response.writeHead(status).end())
      const call = createTestedWire().download({ url: server.url, fd: openPrivateFile(t).fd, ...LIMITS })
      await assert.rejects(call, { name: 'ArtifactError', code: 'bad_response' })
    })
  }

  it('returns a refusal to the caller', async t => {
    const server = await serve(t, (_, response) => response.writeHead(403).end('{"error":"wrong slug"}'))
    const answer = await createTestedWire().download({ url: server.url, fd: openPrivateFile(t).fd, ...LIMITS })
    assert.ok(!answer.ok)
    assert.deepEqual([answer.status, answer.body, answer.attempts], [403, { error: 'wrong slug' }, 1])
  })

  it('throws host_not_writable when the descriptor is not open for writing', async t => {
    const server = await serve(t, (_, response) => response.end('zip'))
    const fd = openSync('/dev/null', 'r')
    t.after(() => closeSync(fd))
    const call = createTestedWire().download({ url: server.url, fd, ...LIMITS })
    await assert.rejects(call, { name: 'DeploymentError', code: 'host_not_writable' })
    assert.equal(server.connections(), 1)
  })
})

describe('writeChunkSync', () => {
  const skip = existsSync('/dev/full') ? false : 'there is no /dev/full here'
  it('throws disk_full on a full disk', { skip }, t => {
    const fd = openSync('/dev/full', 'w')
    t.after(() => closeSync(fd))
    assert.throws(() => writeChunkSync(fd, Buffer.from('zip'), 0), { name: 'DeploymentError', code: 'disk_full' })
  })
})

const BODY_BYTES = 128 * MEBIBYTE

/** A server in a separate process, whose memory does not count. */
const SERVER = `
  const { createServer } = require('node:http')
  const piece = Buffer.alloc(${MEBIBYTE})
  createServer((_, response) => {
    let left = ${BODY_BYTES / MEBIBYTE}
    const send = () => left-- > 0 ? response.write(piece, send) : response.end()
    send()
  }).listen(0, '127.0.0.1', function () { console.log(this.address().port) })
`

async function startServer(t: TestContext): Promise<string> {
  const server = spawn(process.execPath, ['-e', SERVER], { stdio: ['ignore', 'pipe', 'inherit'] })
  t.after(() => server.kill())
  const [port] = await once(server.stdout, 'data')
  return `http://127.0.0.1:${Number(port)}/`
}

/**
 * Measures in a separate process, because this process may still have the buffers of earlier tests, and collects
 * garbage less often.
 */
async function bufferedBytes(url: string, path: string): Promise<number> {
  const program = join(import.meta.dirname, 'buffered-bytes.ts')
  const { stdout } = await promisify(execFile)(process.execPath, [program, url, path])
  assert.equal(statSync(path).size, BODY_BYTES)
  return Number(stdout)
}

describe('weighOnHeap', () => {
  it('causes the used chunks of a download to be collected soon', async t => {
    const url = await startServer(t)
    const path = join(temporaryDirectory(t), 'artifact')
    const found: number[] = []
    // On a busy machine, the thread that frees the buffers may be late in one run.
    for (let run = 0; run < 3; run++) found.push(await bufferedBytes(url, path))
    const least = Math.min(...found)
    assert.ok(least < 32 * MEBIBYTE, `at least ${least} bytes`)
  })
})
