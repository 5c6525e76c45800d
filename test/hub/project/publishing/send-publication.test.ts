import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { createServer, type RequestListener, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { sendPublication } from '../../../../hub/project/publishing/send-publication.ts'
import { HANG_LIMIT_MS } from '../../../extent.ts'
import { CLOSED_PORT } from '../../../net/loopback-server.ts'
import { runHub } from '../../running-hub.ts'
import { ADMIN, newValue, PUBLISH } from '../project-client.ts'
import { sealShop } from '../project-source.ts'

describe('publishing to a hub that does not answer', () => {
  it('says that it cannot be reached, and why', async t => {
    const nowhere = { hubUrl: `http://127.0.0.1:${CLOSED_PORT}`, devkey: 'key' }
    const sent = sendPublication(nowhere, await sealShop(t), { wait: neverWait })
    await assert.rejects(sent, /^HubError: http:\S+ cannot be reached \(ECONNREFUSED\): check --hub-url/)
  })

  it('says that the version may have been published when the connection breaks', async t => {
    const { hubUrl } = await serve(t, request => request.resume().once('end', () => request.socket.destroy()))
    const sent = sendPublication({ hubUrl, devkey: 'key' }, await sealShop(t), { wait: neverWait })
    await assert.rejects(
      sent,
      /^HubError: The connection to http:\S+ broke \(\w+\), so the version may or may not have been/,
    )
  })
})

describe('publishing to a server that does not answer like a hub', () => {
  const UNKNOWN = /, so the version may or may not have been published: check --hub-url, and run the command again\./
  for (const [status, message] of [
    [200, UNKNOWN],
    [502, UNKNOWN],
    [504, UNKNOWN],
    [302, /: nothing was published\. This command follows no redirect/],
    [404, /: nothing was published\. Check --hub-url\.$/],
    [507, /: nothing was published\.$/],
  ] as const)
    it(`says whether the version may have been published after a ${status}`, async t => {
      const { hubUrl } = await serve(t, (sent, response) =>
        sent.resume().once('end', () => response.writeHead(status).end('<html></html>')),
      )
      const sent = sendPublication({ hubUrl, devkey: 'key' }, await sealShop(t), { wait: neverWait })
      await assert.rejects(
        sent,
        ({ message: said }: Error) => said.includes(` answered ${status}`) && message.test(said),
      )
    })
})

describe('publishing to a busy hub', { timeout: HANG_LIMIT_MS }, () => {
  it('waits as long as the hub asks for, and then publishes', async t => {
    const hub = await runHub(t)
    const access = { hubUrl: hub.url, devkey: newValue(hub, 'publisher') }
    const headers = { ...ADMIN, 'Content-Type': 'application/octet-stream', 'Content-Length': '1000' }
    const others = [0, 1].map(() => request(hub.url + PUBLISH, { method: 'POST', headers, agent: false }))
    for (const other of others) other.on('error', () => {}).write('x')
    const uploads = join(hub.dataDir, 'uploads')
    while (!existsSync(uploads) || readdirSync(uploads).length < 2) await setImmediate()
    const waits: number[] = []
    const sealed = await sealShop(t, {}, { 'plugins/cart/data': randomBytes(8_000_000).toString('latin1') })
    const wait = async (ms: number) => {
      waits.push(ms)
      for (const other of others) other.destroy()
      while (readdirSync(uploads).length > 0) await setImmediate()
    }
    const { version } = await sendPublication(access, sealed, { wait })
    assert.deepEqual([version, waits], ['1.0.0', [60_000]])
  })

  for (const [retryAfter, expected] of [
    ['5', 5_000],
    ['3600', 60_000],
    ['-1', 60_000],
    ['Wed, 21 Oct 2099 07:28:00 GMT', 60_000],
  ] as const)
    it(`gives up after eleven attempts, with the hub's answer, if the hub asks for: ${retryAfter}`, async t => {
      const { hubUrl } = await serve(t, (sent, response) =>
        sent.resume().once('end', () => {
          response.writeHead(503, { 'Retry-After': retryAfter, 'Content-Type': 'application/json' })
          response.end('{"error": "The hub is busy."}')
        }),
      )
      const waits: number[] = []
      const wait = async (ms: number) => waits.push(ms)
      const publishing = sendPublication({ hubUrl, devkey: 'key' }, await sealShop(t), { wait })
      await assert.rejects(
        publishing,
        /^HubError: http:\S+ answered 503 \(The hub is busy\.\): nothing was published\.$/,
      )
      assert.deepEqual(waits, Array(10).fill(expected))
    })
})

async function neverWait(): Promise<void> {
  assert.fail('the publication waited for the hub')
}

async function serve(t: TestContext, answer: RequestListener) {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.after(() => once(server.close(), 'close'))
  return { hubUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}
