import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { type ArtifactError, ConfigError } from '../../../src/core/errors.ts'
import { resolveDownloadUrl } from '../../../src/project/api/download-url.ts'

function resolve(downloadUrl: string, hub = 'https://hub.example'): string {
  return resolveDownloadUrl(downloadUrl, `${hub}/v1/projects/shop/artifacts/1.0.0`, new URL(hub)).href
}

describe('resolveDownloadUrl', () => {
  const cases: { name: string; given: string; hub?: string; expected: string }[] = [
    { name: 'keeps another host', given: 'https://blob.example/a?sig=1', expected: 'https://blob.example/a?sig=1' },
    { name: 'upgrades the hub itself', given: 'http://hub.example/a?b=1', expected: 'https://hub.example/a?b=1' },
    { name: 'upgrades an explicit port 80', given: 'http://hub.example:80/a', expected: 'https://hub.example/a' },
    {
      name: "upgrades the hub's own port",
      given: 'http://hub.example:8443/a',
      hub: 'https://hub.example:8443',
      expected: 'https://hub.example:8443/a',
    },
    {
      name: 'uses the default port when none is written',
      given: 'http://hub.example/a',
      hub: 'https://hub.example:8443',
      expected: 'https://hub.example/a',
    },
    { name: 'upgrades a host in capitals', given: 'http://HUB.example/a', expected: 'https://hub.example/a' },
    { name: 'keeps http for another port', given: 'http://hub.example:8080/a', expected: 'http://hub.example:8080/a' },
    { name: 'keeps http for another host', given: 'http://blob.example/a', expected: 'http://blob.example/a' },
    {
      name: "keeps http for a host that only starts with the hub's name",
      given: 'http://hub.example.evil.example/a',
      expected: 'http://hub.example.evil.example/a',
    },
    {
      name: 'keeps http for an http hub',
      given: 'http://127.0.0.1:8080/a',
      hub: 'http://127.0.0.1:8080',
      expected: 'http://127.0.0.1:8080/a',
    },
    {
      name: 'resolves a path',
      given: '/download/1',
      hub: 'https://hub.example',
      expected: 'https://hub.example/download/1',
    },
    {
      name: 'resolves a relative path against the URL of the answer',
      given: 'file',
      expected: 'https://hub.example/v1/projects/shop/artifacts/file',
    },
    {
      name: 'lets a hub on this host refer to another service on this host',
      given: 'http://127.0.0.1:9000/a',
      hub: 'https://127.0.0.1:8443',
      expected: 'http://127.0.0.1:9000/a',
    },
  ]
  for (const { name, given, hub, expected } of cases) it(name, () => assert.equal(resolve(given, hub), expected))

  for (const given of ['http://[', 'https://', 'https://hub.example:99999/']) {
    it(`refuses ${given} as bad_response`, () => {
      assert.throws(
        () => resolve(given),
        (error: ArtifactError) => error.code === 'bad_response',
      )
    })
  }

  for (const [given, found] of [
    ['file:///etc/passwd', /found one with the scheme "file":/],
    ['foo:bar', /found one with the scheme "foo":/],
    ['https://user:pass@blob.example/a', /found one with a user name or password:/],
  ] as const)
    for (const hub of ['https://hub.example', 'http://127.0.0.1:8080'])
      it(`refuses ${given} from ${hub} as insecure_url, and says that it was a download_url`, () => {
        assert.throws(
          () => resolve(given, hub),
          (error: ConfigError) => {
            assert.ok(error instanceof ConfigError && error.code === 'insecure_url')
            assert.match(error.message, found)
            assert.match(error.message, /^Expected an https URL as the download_url that https?:/)
            return !/redirect|pass@|null/.test(error.message)
          },
        )
      })
})
