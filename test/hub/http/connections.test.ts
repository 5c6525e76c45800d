import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { globSync, statSync, truncateSync } from 'node:fs'
import { createServer } from 'node:http'
import { type AddressInfo, connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { describe, it, type TestContext } from 'node:test'
import { setImmediate, setTimeout } from 'node:timers/promises'
import { artifactPath } from '../../../hub/artifacts.ts'
import { endSlowBodies, endStalledAnswers } from '../../../hub/http/connections.ts'
import { HANG_LIMIT_MS } from '../../extent.ts'
import { isOpen } from '../../folders.ts'
import { ADMIN, PUBLISH } from '../project/project-client.ts'
import { sealShop } from '../project/project-source.ts'
import { type HubUnderTest, runHub } from '../running-hub.ts'

/** The bytes of a body that must arrive in a minute. */
const ENOUGH = 960_000
const UPLOAD = { ...ADMIN, 'Content-Type': 'application/octet-stream' }
const JSON_BODY = { 'Content-Type': 'application/json' }

describe('a request whose body is slow', { timeout: HANG_LIMIT_MS }, () => {
  for (const [name, path, headers] of [
    ['an upload', PUBLISH, UPLOAD],
    ['a report', '/v1/auth', JSON_BODY],
  ] as const)
    it(`is ended after its second minute: ${name} that stops`, async t => {
      const { send, minute, answer } = await open(t)
      await send(head(path, { ...headers, 'Content-Length': '1000' }), '{')
      minute()
      minute()
      assert.match(await answer, /^HTTP\/1\.1 408 /)
    })

  it('is ended even if it was fast before', async t => {
    const { hub, send, minute, answer } = await open(t)
    await send(head(PUBLISH, { ...UPLOAD, 'Content-Length': '100000000' }), randomBytes(10 * ENOUGH))
    await received(hub, 10 * ENOUGH)
    minute()
    await send(randomBytes(ENOUGH - 1))
    await received(hub, 11 * ENOUGH - 1)
    minute()
    assert.match(await answer, /^HTTP\/1\.1 408 /)
  })

  it('is ended if only its framing is fast', async t => {
    const { hub, send, minute, answer } = await open(t)
    await send(head(PUBLISH, { ...UPLOAD, 'Transfer-Encoding': 'chunked' }), '1\r\nx\r\n')
    minute()
    const chunks = ENOUGH / 1000
    await send(`${'1'.padStart(1000, '0')}\r\nx\r\n`.repeat(chunks))
    await received(hub, chunks + 1)
    minute()
    assert.match(await answer, /^HTTP\/1\.1 408 /)
  })

  for (const [name, path, headers] of [
    ['its length', '/v1/auth', JSON_BODY],
    ['its sender', PUBLISH, { 'Content-Type': 'application/octet-stream' }],
  ] as const)
    it(`is ended, whatever still arrives, when it was refused for ${name}`, async t => {
      const { send, answer } = await open(t)
      await send(head(path, { ...headers, 'Content-Length': '100000000' }), randomBytes(2 * ENOUGH))
      await answer
    })

  it('is awaited if it is an upload that sends enough in each minute', async t => {
    const { hub, send, minute, answer } = await open(t)
    const { bytes, release } = await sealShop(t, {}, { 'plugins/cart/data': randomBytes(7_000_000).toString('latin1') })
    const { signature, dek, version, signer_public_key } = release
    const fields = { 'X-Artifact-Signature': signature, 'X-Dek': dek, 'X-Version': version }
    const length = { 'Content-Length': String(bytes.length), Connection: 'close' }
    await send(head(PUBLISH, { ...UPLOAD, ...fields, 'X-Signer-Public-Key': signer_public_key, ...length }))
    for (let passed = 0; passed < 7; passed++) {
      const sent = (passed + 1) * ENOUGH
      await send(bytes.subarray(sent - ENOUGH, sent))
      await received(hub, sent)
      minute()
    }
    await send(bytes.subarray(7 * ENOUGH))
    assert.match(await answer, /^HTTP\/1\.1 201 /)
  })

  it('has no Node.js time limit for its whole body, but has one for its headers', () => {
    const server = createServer()
    endSlowBodies(server)
    assert.deepEqual([server.requestTimeout, server.headersTimeout], [0, 60_000])
  })
})

/** Opens a connection to a hub whose clock the test controls. */
async function open(t: TestContext) {
  const watching = new Set<() => void>()
  const everyMinute = (work: () => void) => {
    watching.add(work)
    return () => void watching.delete(work)
  }
  const hub = await runHub(t, { everyMinute })
  const client = connect(Number(new URL(hub.url).port), '127.0.0.1')
  // The hub may end the connection while the test still sends.
  const answer = text(client).catch(() => 'ended')
  t.after(() => client.destroy())
  const send = async (...pieces: readonly (string | Buffer)[]) => {
    for (const piece of pieces) await write(client, piece)
    while (watching.size === 0) await setImmediate()
  }
  return {
    hub,
    answer,
    send,
    minute: () => {
      for (const work of watching) work()
    },
  }
}

function write(client: Socket, piece: string | Buffer): Promise<void> {
  return new Promise(resolve => client.write(piece, () => resolve()))
}

function head(path: string, headers: Record<string, string>): string {
  const lines = Object.entries({ Host: 'localhost', ...headers }).map(pair => pair.join(': '))
  return `POST ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`
}

/** Resolves when the hub has this many bytes of an upload. */
async function received({ dataDir }: HubUnderTest, bytes: number): Promise<void> {
  const size = () => globSync(join(dataDir, 'uploads/*/upload')).reduce((sum, path) => sum + statSync(path).size, 0)
  while (size() < bytes) await setImmediate()
}

const STALL_MS = 100
/** More than the system buffers for both sides of a connection. */
const SIZE = 64 * 1024 * 1024

describe('an answer that its client does not read', { timeout: HANG_LIMIT_MS }, () => {
  it('is ended, and its file is closed', async t => {
    const hub = await runHub(t, { stallMs: STALL_MS })
    await hub.publish()
    const sha256 = String(hub.store.db.prepare('SELECT sha256 FROM versions').get()?.['sha256'])
    const path = artifactPath(hub.store, sha256)
    truncateSync(path, SIZE)
    hub.store.db.prepare('UPDATE versions SET size = ?').run(SIZE)
    const client = connect(Number(new URL(hub.url).port), '127.0.0.1')
    t.after(() => client.destroy())
    client.write(`GET /plugins/hello/install HTTP/1.1\r\nHost: localhost\r\nX-API-Key: ${hub.newKey()}\r\n\r\n`)
    await once(client, 'readable')
    assert.match(String(client.read(15)), /^HTTP\/1\.1 200/)
    while (isOpen(path)) await setTimeout(STALL_MS / 10)
  })

  it('is not ended while the server still works on it', async t => {
    const server = createServer(async (_, response) => {
      await setTimeout(3 * STALL_MS)
      response.end('late')
    })
    endStalledAnswers(server, STALL_MS)
    t.after(() => server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    assert.equal(await response.text(), 'late')
  })
})
