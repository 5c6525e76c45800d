import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseSignatureHeader } from '../../../src/core/trust/signature.ts'
import { readRequestHeaders } from '../../../src/net/exchange/headers.ts'
import { serve, serveSocket } from '../loopback-server.ts'
import { createTestedWire, get } from '../tested-wire.ts'

describe('readRequestHeaders', () => {
  it('converts names to lower case', () =>
    assert.deepEqual(readRequestHeaders({ 'X-API-Key': 'k' }), { 'x-api-key': 'k' }))

  const refused: [name: string, headers: Record<string, string>][] = [
    ['a line break in a value', { 'X-API-Key': 's3cret\n' }],
    ['a header smuggled in after a value', { 'X-API-Key': 's3cret\r\nX-Admin: 1' }],
    ['a NUL in a value', { 'X-API-Key': 's3cret\0' }],
    ['a character beyond Latin-1', { 'X-API-Key': 's3cret\u{1f511}' }],
    ['a line break in a name', { 'X-API\nKey': 's3cret' }],
  ]
  for (const [name, headers] of refused) {
    it(`refuses ${name} without quoting the value`, () => {
      assert.throws(
        () => readRequestHeaders(headers),
        (error: Error & { code: string }) => error.code === 'invalid_input' && !error.message.includes('s3cret'),
      )
    })
  }

  it('checks headers before anything is sent', async t => {
    const server = await serve(t, (_, response) => response.end())
    const request = { ...get(server.url), credentials: { 'X-API-Key': 'a\r\nb: c' } }
    await assert.rejects(createTestedWire().requestJson(request), { name: 'ConfigError', code: 'invalid_input' })
    assert.equal(server.connections(), 0)
  })
})

describe('readResponseHeaders', () => {
  it('returns lower-case names and joins repeated headers', async t => {
    const server = await serve(t, (_, response) => {
      response.setHeader('X-Repo', 'owner/repo@v1')
      response.setHeader('Set-Cookie', ['a=1', 'b=2'])
      response.end('{}')
    })
    const { headers } = await createTestedWire().requestJson(get(server.url))
    assert.equal(headers['x-repo'], 'owner/repo@v1')
    assert.equal(headers['set-cookie'], 'a=1, b=2')
  })

  it('accepts neither signature of an answer that has two', async t => {
    const one = `hmac_sha256:${'a'.repeat(64)}`
    const two = `hmac_sha256:${'b'.repeat(64)}`
    const server = await serveSocket(t, socket =>
      socket.end(`HTTP/1.1 200 OK\r\nX-Signature: ${one}\r\nX-Signature: ${two}\r\nContent-Length: 2\r\n\r\n{}`),
    )
    const { headers } = await createTestedWire().requestJson(get(server.url))
    assert.throws(() => parseSignatureHeader(headers['x-signature']), { code: 'invalid_signature_format' })
  })
})
