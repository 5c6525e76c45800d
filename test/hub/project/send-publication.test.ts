import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { describe, it, type TestContext } from 'node:test'
import { sendPublication } from '../../../hub/project/publishing/send-publication.ts'
import { sealShop } from './project-source.ts'

describe('publishing on a hub that gives no answer', () => {
  it('says that it cannot be reached, and why', async t => {
    const { hubUrl, close } = await serve(t, () => {})
    await close()
    const sent = sendPublication({ hubUrl, devkey: 'key' }, await sealShop(t))
    await assert.rejects(sent, /^HubError: http:\S+ cannot be reached \(ECONNREFUSED\): check --hub-url/)
  })

  it('says that the version may be published when the connection breaks', async t => {
    const { hubUrl } = await serve(t, request => request.resume().once('end', () => request.socket.destroy()))
    const sent = sendPublication({ hubUrl, devkey: 'key' }, await sealShop(t))
    await assert.rejects(sent, /^HubError: The connection to http:\S+ broke \(\w+\), and the version may have been/)
  })
})

async function serve(t: TestContext, answer: RequestListener) {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const close = async () => {
    if (server.listening) await once(server.close(), 'close')
  }
  t.after(close)
  return { hubUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close }
}
