import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http'
import { type AddressInfo, createServer as createTcpServer } from 'node:net'
import { describe, it, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { z } from 'zod'
import { requireSafeUrl, type SendingTools, sendUpload } from '../../../hub/http/send-upload.ts'
import { HANG_LIMIT_MS } from '../../extent.ts'
import { CLOSED_PORT } from '../../net/loopback-server.ts'
import { runHub } from '../running-hub.ts'

const ANSWER = z.object({ version: z.string() })
const BODY = Buffer.alloc(20_000_000, 1)

describe('the URL of a hub', () => {
  for (const url of [
    'https://hub.example.com',
    'https://hub.example.com:8443/app/',
    'http://127.0.0.1:1',
    'http://[::1]:1',
  ])
    it(`is accepted: ${url}`, () => {
      assert.equal(requireSafeUrl(url), url.replace(/\/$/, ''))
    })

  for (const url of [
    ...['http://hub.example.com', 'http://127.0.0.1.example.com', 'http://localhost.example.com', 'http://0.0.0.0:1'],
    ...['ftp://127.0.0.1', 'file:///etc', 'hub.example.com', '', 'https://', 'http:hub.example.com'],
    ...['https://hub.example.com?a=b', 'https://hub.example.com#a', 'https://me@hub.example.com'],
    'https://:password@hub.example.com',
  ])
    it(`is refused, and no password is shown: ${JSON.stringify(url)}`, () => {
      assert.throws(
        () => requireSafeUrl(url),
        ({ name, message }: Error) => name === 'HubError' && !message.includes('password@'),
      )
    })
})

describe('an upload to a hub', { timeout: HANG_LIMIT_MS }, () => {
  it('arrives unchanged, with its length', async t => {
    const received: Buffer[] = []
    let headers: IncomingMessage['headers'] = {}
    const url = await serve(t, (request, response) => {
      ;({ headers } = request)
      request.on('data', chunk => received.push(chunk))
      request.on('end', () => response.writeHead(201).end('{"version": "1"}'))
    })
    assert.deepEqual(await send(url), { status: 201, answer: { version: '1' } })
    assert.ok(Buffer.concat(received).equals(BODY))
    assert.deepEqual([headers['content-length'], headers['x-key']], [String(BODY.length), 'secret'])
  })

  for (const status of [301, 302, 303, 307, 308])
    it(`follows no redirect: ${status}`, async t => {
      let requests = 0
      const other = await serve(t, (_, response) => response.end(`{"version": "${++requests}"}`))
      const url = await serve(t, answering(status, '', { Location: other }))
      await assert.rejects(send(url), {
        message: `${url} answered ${status}: nothing was published. This command follows no redirect: correct --hub-url.`,
      })
      assert.equal(requests, 0)
    })

  for (const [status, sentence] of [
    [401, ': nothing was published. Check the variable with the key, and that the key was not revoked.'],
    [403, ': nothing was published.'],
    [404, ': nothing was published. Check --hub-url.'],
    [408, ': nothing was published. The upload was too slow.'],
    [409, ': nothing was published.'],
    [413, ': nothing was published. A proxy in front of the hub may have a lower limit than the hub.'],
    [422, ': nothing was published.'],
    [507, ': nothing was published.'],
    [500, ', so the version may or may not have been published: '],
    [204, ', so the version may or may not have been published: '],
  ] as const)
    it(`says in one line what ${status} means, with the hub's words`, async t => {
      const words = { error: 'The reason\nis\u001b[2J this. ##[add-mask]x' }
      const url = await serve(t, answering(status, status === 204 ? '' : JSON.stringify(words)))
      const shown = status === 204 ? '' : ' (The reason is [2J this. ## [add-mask]x)'
      await assert.rejects(send(url), ({ message }: Error) =>
        message.startsWith(`${url} answered ${status}${shown}${sentence}`),
      )
    })

  it('ends when it is refused early, with the reason', async t => {
    const hub = await runHub(t)
    const sent = send(`${hub.url}/plugins/hello/publish`, {}, { Authorization: 'Bearer wrong' })
    await assert.rejects(sent, / answered 401 \(This is neither a publish key/)
  })

  it('ends when the hub reads nothing', async t => {
    const url = await serve(t, request => request.pause())
    await assert.rejects(
      send(url, { stallMs: 100 }),
      / broke \(no progress for 0\.1 s\), so the version may or may not/,
    )
  })

  for (const [name, answer] of [
    ['does not answer', () => {}],
    ['never ends its headers', (_: ServerResponse, socket) => socket.write('HTTP/1.1 201 Created\r\nX-A: ')],
    ['never ends its answer', (response: ServerResponse) => response.writeHead(201).write('{')],
  ] as [string, (response: ServerResponse, socket: IncomingMessage['socket']) => void][])
    it(`ends when the hub ${name}`, async t => {
      const url = await serve(t, (request, response) =>
        request.resume().on('end', () => {
          answer(response, request.socket)
          const drip = setInterval(() => request.socket.write(' '), 20)
          request.socket.on('error', () => {}).on('close', () => clearInterval(drip))
        }),
      )
      await assert.rejects(send(url, { answerMs: 200 }), /so the version may or may not have been published/)
    })

  it('reads at most the beginning of an endless answer', async t => {
    const url = await serve(t, (request, response) => {
      response.on('error', () => {})
      const more = () => {
        while (!response.destroyed && response.write('{"version": "1", '.repeat(1000)));
      }
      request.resume().on('end', () => response.writeHead(201).on('drain', more) && more())
    })
    await assert.rejects(send(url), / answered 201, so the version may or may not have been published/)
  })

  it('ends when the hub switches protocols', async t => {
    const switching = 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n'
    const server = createTcpServer(socket => socket.on('error', () => {}).once('data', () => socket.write(switching)))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.after(() => server.close())
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    await assert.rejects(send(url), / broke \(the protocol was switched\), so the version may or may not/)
  })

  it('says that the hub cannot be reached', async () => {
    await assert.rejects(send(`http://127.0.0.1:${CLOSED_PORT}`), / cannot be reached \(ECONNREFUSED\)/)
  })
})

describe('the progress of an upload', { timeout: HANG_LIMIT_MS }, () => {
  it('is shown in at most eleven lines, the last of which says what the client waits for', async t => {
    const { lines, ticks } = await watch(t, false)
    assert.ok(ticks > 20)
    assert.ok(lines.length > 3 && lines.length <= 11, lines.join(''))
    assert.match(lines[0] ?? '', /^Sent \d+ % of 20\.0 MB\.\n$/)
    assert.equal(lines.at(-1), 'Sent all of 20.0 MB. Waiting until the hub has checked it.\n')
  })

  it('is one line of a terminal, which ends before anything else is shown', async t => {
    const { lines } = await watch(t, true)
    const [before, ...parts] = lines.join('').split('\r')
    const texts = parts.map(part => part.replace('\u001b[K', ''))
    assert.ok(before === '' && texts.length > 3 && texts.slice(0, -1).every(text => /^Sent [^\n]+$/.test(text)))
    assert.match(texts.at(-1) ?? '', /^Sent all of [^\n]+\n$/)
  })

  it('is not shown for an upload that ends within two seconds', async t => {
    const shown: string[] = []
    const url = await serve(t, answering(201, '{"version": "1"}'))
    await send(url, { screen: { write: text => shown.push(text) }, everyTwoSeconds: () => () => {} })
    assert.deepEqual(shown, [])
  })
})

/** The texts that an upload shows if two seconds pass with each piece that the server reads. */
async function watch(t: TestContext, isTTY: boolean): Promise<{ readonly lines: string[]; readonly ticks: number }> {
  const lines: string[] = []
  let [tick, ticks, isStopped] = [() => {}, 0, false]
  const everyTwoSeconds = (work: () => void) => {
    tick = work
    return () => {
      isStopped = true
    }
  }
  const pass = () => {
    if (!isStopped) tick()
    ticks += 1
  }
  const url = await serve(t, async (request, response) => {
    for await (const _ of request) {
      pass()
      await setImmediate()
    }
    pass()
    response.writeHead(201).end('{"version": "1"}')
  })
  await send(url, { screen: { isTTY, write: text => lines.push(text) }, everyTwoSeconds })
  assert.ok(isStopped)
  return { lines, ticks }
}

function send(url: string, tools: SendingTools = {}, headers: Record<string, string> = { 'X-Key': 'secret' }) {
  return sendUpload({ url, headers, body: BODY }, ANSWER, tools)
}

function answering(status: number, body: string, headers = {}): RequestListener {
  return (request, response) => request.resume().on('end', () => response.writeHead(status, headers).end(body))
}

async function serve(t: TestContext, answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
