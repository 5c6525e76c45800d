import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { createServer } from 'node:http'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { describe, it } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { endSlowBodies } from '../../hub/http/slow-bodies.ts'
import { sealShop } from './project/project-source.ts'
import { ADMIN } from './project/publishing.ts'
import { runHub } from './running-hub.ts'

const GRACE_MS = 100

describe('a request whose body is slow', { timeout: 30_000 }, () => {
  for (const [name, path, headers] of [
    ['an upload', '/v1/projects/shop/publish', { ...ADMIN, 'Content-Type': 'application/octet-stream' }],
    ['a report', '/v1/auth', { 'Content-Type': 'application/json' }],
  ] as const)
    it(`is ended: ${name} that stops`, async t => {
      const { url } = await runHub(t, { bodyGraceMs: GRACE_MS })
      const client = connect(Number(new URL(url).port), '127.0.0.1')
      const lines = Object.entries({ Host: 'localhost', 'Content-Length': '1000', ...headers }).map(pair =>
        pair.join(': '),
      )
      client.write(`POST ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n{`)
      assert.match(await text(client), /^HTTP\/1\.1 408 /)
    })

  it('is waited for when enough of it has come', async t => {
    const hub = await runHub(t, { bodyGraceMs: GRACE_MS })
    const { bytes, release } = await sealShop(t, {}, { 'plugins/cart/data': randomBytes(100_000).toString('hex') })
    const { signature, dek, version } = release
    const fields = { 'X-Artifact-Signature': signature, 'X-Dek': dek, 'X-Version': version }
    const headers = { ...ADMIN, ...fields, 'X-Signer-Public-Key': release.signer_public_key }
    const body = async function* () {
      yield bytes.subarray(0, -1)
      await setTimeout(3 * GRACE_MS)
      yield bytes.subarray(-1)
    }
    const response = await fetch(`${hub.url}/v1/projects/shop/publish`, {
      method: 'POST',
      headers: { ...headers, 'Content-Type': 'application/octet-stream' },
      body: body() as unknown as ReadableStream,
      duplex: 'half',
    } as RequestInit)
    assert.equal(response.status, 201, await response.text())
  })

  it('has no limit for the whole, but one for its headers', () => {
    const server = createServer()
    endSlowBodies(server)
    assert.deepEqual([server.requestTimeout, server.headersTimeout], [0, 60_000])
  })
})
