import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { isLoopback, parseRequestUrl, refuseInsecureHop } from '../../../src/net/policy/url-policy.ts'

describe('parseRequestUrl', () => {
  const accepted: [name: string, url: string, allowHttp: boolean][] = [
    ['https', 'https://hub.test/base', false],
    ['plain http to 127.0.0.1', 'http://127.0.0.1:8080', false],
    ['plain http to all of 127.0.0.0/8', 'http://127.9.8.7', false],
    ['plain http to ::1', 'http://[::1]:8080', false],
    ['plain http to localhost', 'http://LOCALHOST', false],
    ['plain http to another host with allowHttp', 'http://hub.test', true],
  ]
  for (const [name, url, allowHttp] of accepted) {
    it(`accepts ${name}`, () => assert.equal(parseRequestUrl(url, { allowHttp }).href, new URL(url).href))
  }

  const refused: [name: string, url: string, code: string, allowHttp: boolean][] = [
    ['plain http to another host', 'http://hub.test', 'insecure_url', false],
    ['a name that starts like a loopback address', 'http://127.0.0.1.evil.test', 'insecure_url', false],
    ['a name below localhost', 'http://a.localhost', 'insecure_url', false],
    ['a private address', 'http://10.0.0.1', 'insecure_url', false],
    ['the unspecified address', 'http://0.0.0.0', 'insecure_url', false],
    ['a file', 'file:///etc/passwd', 'insecure_url', true],
    ['ftp', 'ftp://hub.test/a', 'insecure_url', true],
    ['a user name', 'https://user@hub.test', 'insecure_url', true],
    ['a password', 'https://:secret@hub.test', 'insecure_url', true],
    ['text that is not a URL', 'hub.test', 'invalid_input', true],
    ['an empty text', '', 'invalid_input', true],
  ]
  for (const [name, url, code, allowHttp] of refused) {
    it(`refuses ${name}`, () => assert.throws(() => parseRequestUrl(url, { allowHttp }), { name: 'ConfigError', code }))
  }

  for (const url of [
    'https://user:s3cret@hub.test',
    '//user:s3cret@hub.test/?t=s3cret',
    'hub.test/?token=s3cret#s3cret',
  ]) {
    it(`quotes no secret from ${url}`, () => {
      assert.throws(
        () => parseRequestUrl(url, { allowHttp: false }),
        (error: Error) => !error.message.includes('s3cret'),
      )
    })
  }
})

describe('refuseInsecureHop', () => {
  const refused: [from: string, to: string][] = [
    ['https://hub.test', 'http://hub.test'],
    ['https://hub.test', 'http://127.0.0.1'],
    ['https://127.0.0.1', 'http://127.0.0.1'],
    ['https://hub.test', 'foo:bar'],
    ['http://hub.test', 'foo:bar'],
    ['http://hub.test', 'https://user@blobs.test'],
  ]
  for (const [from, to] of refused) {
    it(`refuses ${from} to ${to}`, () => {
      assert.throws(() => refuseInsecureHop(new URL(from), new URL(to)), { name: 'ConfigError', code: 'insecure_url' })
    })
  }

  const accepted: [from: string, to: string][] = [
    ['https://hub.test', 'https://blobs.test'],
    ['http://127.0.0.1', 'https://blobs.test'],
    ['http://hub.test', 'http://blobs.test'],
  ]
  for (const [from, to] of accepted) {
    it(`accepts ${from} to ${to}`, () => refuseInsecureHop(new URL(from), new URL(to)))
  }
})

describe('isLoopback', () => {
  for (const host of ['127.1', '0x7f.0.0.1', '2130706433']) {
    it(`recognizes ${host} by the address that the URL parser makes of it`, () => {
      assert.equal(isLoopback(new URL(`http://${host}`).hostname), true)
    })
  }
})
