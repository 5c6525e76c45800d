import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { gzipSync } from 'node:zlib'
import { MAX_JSON_BODY_BYTES } from '../../src/core/identifiers.ts'
import { serve } from './loopback-server.ts'
import { createTestedWire, get } from './tested-wire.ts'

describe('requestJson', () => {
  it('sends a JSON body with its credentials and returns the parsed answer', async t => {
    let sent = ''
    const server = await serve(t, (request, response) => {
      request.setEncoding('utf8').on('data', text => {
        sent += text
      })
      request.on('end', () => response.writeHead(201).end('{"id":"7"}'))
    })
    const call = {
      method: 'POST',
      url: `${server.url}/r`,
      body: { ü: 1 },
      credentials: { 'X-API-Key': 'key' },
      retry: 'never',
      timeoutMs: 600_000,
    } as const
    const answer = await createTestedWire().requestJson(call)
    const headers = server.requests[0]?.headers
    assert.deepEqual([answer.status, answer.body, sent], [201, { id: '7' }, '{"ü":1}'])
    assert.deepEqual(
      [headers?.['content-type'], headers?.['content-length'], headers?.['x-api-key']],
      ['application/json', '8', 'key'],
    )
    assert.deepEqual([headers?.['user-agent'], headers?.['accept-encoding']], ['hub-deploy-test', 'identity'])
  })

  it('requests the path and query unchanged', async t => {
    const server = await serve(t, (_, response) => response.end())
    await createTestedWire().requestJson(get(`${server.url}/a%2Fb?version=1.0%2B2`))
    assert.equal(server.requests[0]?.url, '/a%2Fb?version=1.0%2B2')
  })

  const bodies: [name: string, sent: string, body: unknown, text: string][] = [
    ['an empty body', '', undefined, ''],
    ['null', 'null', null, 'null'],
    ['HTML', '<h1>502</h1>\n', undefined, '<h1>502</h1>'],
    ['half a JSON text', '{"a":', undefined, '{"a":'],
    ['JSON after a byte order mark', '\ufeff{"a":1}', { a: 1 }, '{"a":1}'],
    ['what a log would run as a command', '::error::x', undefined, '::error::x'],
  ]
  for (const [name, sent, body, text] of bodies) {
    it(`reads ${name}`, async t => {
      const server = await serve(t, (_, response) => response.end(sent))
      const answer = await createTestedWire().requestJson(get(server.url))
      assert.deepEqual(answer.body, body)
      assert.equal(answer.text, text)
    })
  }

  it('truncates the text for messages', async t => {
    const server = await serve(t, (_, response) => response.end('x'.repeat(10_000)))
    const { text } = await createTestedWire().requestJson(get(server.url))
    assert.ok(text.length < 2100 && text.startsWith('x'.repeat(2048)))
  })

  it('accepts a body of exactly the limit', async t => {
    const json = JSON.stringify('x'.repeat(MAX_JSON_BODY_BYTES - 2))
    const server = await serve(t, (_, response) => response.end(json))
    assert.equal(JSON.stringify((await createTestedWire().requestJson(get(server.url))).body), json)
  })

  it('refuses a longer body of a 2xx answer and reads no further', async t => {
    const server = await serve(t, (_, response) => {
      const timer = setInterval(() => response.write('x'.repeat(100_000)), 1)
      response.on('close', () => clearInterval(timer))
    })
    await assert.rejects(createTestedWire().requestJson(get(server.url)), {
      name: 'ArtifactError',
      code: 'bad_response',
    })
  })

  it('returns only the beginning of a longer body of an error', async t => {
    const server = await serve(t, (_, response) => response.writeHead(404).end('x'.repeat(MAX_JSON_BODY_BYTES + 1)))
    const answer = await createTestedWire().requestJson(get(server.url))
    assert.deepEqual([answer.status, answer.body, answer.text.slice(0, 3)], [404, undefined, 'xxx'])
  })

  it('refuses an encoded body of a 2xx answer', async t => {
    const server = await serve(t, (_, response) =>
      response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(gzipSync('{}')),
    )
    await assert.rejects(createTestedWire().requestJson(get(server.url)), { code: 'bad_response' })
  })

  it('returns the status of an error with an encoded body', async t => {
    const server = await serve(t, (_, response) =>
      response.writeHead(404, { 'Content-Encoding': 'gzip' }).end(gzipSync('{}')),
    )
    const { status, body, text } = await createTestedWire().requestJson(get(server.url))
    assert.deepEqual([status, body, text], [404, undefined, ''])
  })

  it('rejects, and never throws synchronously, when the request is invalid', async () => {
    await assert.rejects(createTestedWire().requestJson(get('http://hub.test')), {
      name: 'ConfigError',
      code: 'insecure_url',
    })
  })
})
