import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { parsePluginYaml } from '../../src/core/content/plugin-yaml.ts'
import { DeployError } from '../../src/core/errors.ts'
import type { ArtifactDeployment } from '../../src/marketplace/deployment.ts'
import {
  type DeployedVersion,
  decideVersion,
  fetchArtifact,
  noticeOtherVersion,
  type VersionClaims,
  verifyArtifact,
} from '../../src/marketplace/prepare.ts'
import { collectLog } from '../install/prepared-host.ts'
import { type Handler, serve } from '../net/loopback-server.ts'
import { artifactRequest, startedDeployment } from './deploy-request.ts'

const HMAC = Buffer.alloc(32, 7)

/** A deployment, and the artifact that a hub has served for it with this signature. */
function served(t: TestContext, signatureHeader: string) {
  const { deployment } = startedDeployment(t, 'http://127.0.0.1:9')
  const artifact = { fd: -1, size: 1, sha256: 'ab'.repeat(32) }
  return { deployment, found: { served: { artifact, hmac: HMAC, signatureHeader }, asked: '1.0.0', listed: undefined } }
}

describe('verifyArtifact', () => {
  it('records that the signature was valid, for a run that ends before its next state', async t => {
    const { deployment, found } = served(t, `hmac_sha256:${HMAC.toString('hex')}`)
    await verifyArtifact(deployment, found as never)
    assert.equal(deployment.record.facts.signature_valid, true)
  })

  it('does not record an invalid signature as valid', async t => {
    const { deployment, found } = served(t, `hmac_sha256:${'00'.repeat(32)}`)
    await assert.rejects(verifyArtifact(deployment, found as never), { code: 'signature_mismatch' })
    assert.equal(deployment.record.facts.signature_valid, undefined)
  })
})

/** A hub that answers with `detail` about the latest version. `served` maps a requested version to the served one. */
function hubServing(
  served: Record<string, string>,
  detail = { status: 200, body: '{"latest_version":"2.0.0"}' },
): Handler {
  return (request, response) => {
    const wanted = new URL(request.url ?? '', 'http://hub').searchParams.get('version')
    const version = served[wanted ?? '']
    if (wanted === null) response.writeHead(detail.status).end(detail.body)
    else if (version !== undefined) response.writeHead(200, { 'X-Plugin': `greeter@${version}` }).end('zip')
    else response.writeHead(404).end('{"error":"gone"}')
  }
}

async function fetchOver(t: TestContext, deployment: ArtifactDeployment) {
  return await fetchArtifact(deployment, artifactRequest(t, '').fd)
}

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeployError && error.code === code
}

describe('fetchArtifact', () => {
  it('asks for the listed version, then fetches the one that the hub serves as latest', async t => {
    const server = await serve(t, hubServing({ latest: '1.9.0', '2.0.0': '2.0.0' }))
    const { deployment } = startedDeployment(t, server.url)
    const { asked, served, listed } = await fetchOver(t, deployment)
    assert.deepEqual([asked, served.headerVersion, listed], [undefined, '1.9.0', '2.0.0'])
    assert.partialDeepStrictEqual(deployment.record.facts, { version: '1.9.0', version_source: 'header' })
    assert.deepEqual(
      server.requests.map(({ url }) => url),
      ['/plugins/greeter', '/plugins/greeter/install?version=latest'],
    )
  })

  it('fetches a requested version without asking for the latest one', async t => {
    const server = await serve(t, hubServing({ '1.0.0': '1.0.0' }))
    const { deployment } = startedDeployment(t, server.url, { version: '1.0.0' })
    assert.equal((await fetchOver(t, deployment)).asked, '1.0.0')
    assert.deepEqual(
      server.requests.map(({ url }) => url),
      ['/plugins/greeter/install?version=1.0.0'],
    )
  })

  for (const status of [401, 403, 404, 410]) {
    it(`fetches a plugin that the hub does not list without the key (${status})`, async t => {
      const server = await serve(t, hubServing({ latest: '1.9.0' }, { status, body: '{"error":"no"}' }))
      const { deployment, log } = startedDeployment(t, server.url)
      const { served, listed } = await fetchOver(t, deployment)
      assert.deepEqual([served.headerVersion, listed], ['1.9.0', undefined])
      assert.ok(!log.lines.some(line => /^(notice|warning)/.test(line)))
    })
  }

  for (const [status, code] of [
    [500, 'artifact_unavailable'],
    [429, 'artifact_unavailable'],
  ] as const) {
    it(`fetches nothing from a hub that cannot answer now (${status})`, async t => {
      const server = await serve(t, hubServing({ latest: '1.9.0' }, { status, body: '' }))
      const { deployment } = startedDeployment(t, server.url)
      await assert.rejects(fetchOver(t, deployment), refusedWith(code))
      assert.ok(server.requests.every(({ url }) => url === '/plugins/greeter'))
    })
  }

  it('asks once for a version that the hub does not serve', async t => {
    for (const version of ['latest', '1.0.0']) {
      const server = await serve(t, hubServing({}))
      const { deployment } = startedDeployment(t, server.url, { version })
      await assert.rejects(fetchOver(t, deployment), refusedWith('not_found'))
      assert.equal(server.requests.filter(({ url }) => url?.includes('install')).length, 1)
    }
  })

  it('refuses a download at its first bytes when the temporary folder has no room for it', async t => {
    const server = await serve(t, (_, response) => {
      response.writeHead(200, { 'content-length': String(2 ** 52) }).write('zip')
    })
    const { deployment } = startedDeployment(t, server.url, { version: '1.0.0', maxArtifactBytes: 2 ** 53 })
    await assert.rejects(fetchOver(t, deployment), refusedWith('disk_full'))
    assert.equal(server.requests.length, 1)
  })
})

describe('noticeOtherVersion', () => {
  const served = {
    artifact: { fd: 0, size: 3, sha256: '' },
    hmac: Buffer.alloc(32),
    signatureHeader: '',
    repo: undefined,
  }
  const cases: Record<string, [Partial<VersionClaims>, DeployedVersion, RegExp | undefined]> = {
    'the listed version': [{ listed: '2.0.0' }, { version: 'v2.0.0', source: 'header' }, undefined],
    'a version older than the listed one': [
      { listed: '2.0.0' },
      { version: '1.9.0', source: 'header' },
      /2\.0\.0.*1\.9\.0/,
    ],
    'a version that it does not name': [{ listed: '2.0.0' }, { version: '2.0.0', source: 'requested' }, /does not say/],
    'a version other than the requested one': [
      { asked: '1' },
      { version: '2', source: 'header' },
      /requested version is 1/,
    ],
    'the requested version': [{ asked: '1' }, { version: '1', source: 'requested' }, undefined],
  }
  for (const [name, [claims, decided, said]] of Object.entries(cases)) {
    it(`${said === undefined ? 'logs nothing' : 'logs a notice'} when the hub serves ${name}`, () => {
      const log = collectLog()
      const found = { asked: undefined, listed: undefined, ...claims, served: { ...served, headerVersion: undefined } }
      noticeOtherVersion(log, found, decided)
      const notices = log.lines.filter(line => line.startsWith('notice'))
      assert.equal(notices.length, said === undefined ? 0 : 1)
      if (said !== undefined) assert.match(notices.join(), said)
    })
  }
})

function claims(asked: string | undefined, headerVersion: string | undefined, listed?: string) {
  return { asked, listed, served: { headerVersion } }
}

describe('decideVersion', () => {
  const decided: [string | undefined, string | undefined, string | undefined, string, string][] = [
    ['1.4.0', '9.9.9', 'version: "1.4.0"', '1.4.0', 'plugin.yaml'],
    ['v1.4.0', undefined, 'version: 1.4.0', '1.4.0', 'plugin.yaml'],
    ['1.4.0', undefined, 'version: v1.4.0', 'v1.4.0', 'plugin.yaml'],
    ['1.10', undefined, 'version: "1.10"', '1.10', 'plugin.yaml'],
    ['1.1', undefined, 'version: 1.10', '1.1', 'plugin.yaml'],
    [undefined, undefined, 'version: 1.10', '1.1', 'plugin.yaml'],
    ['1.4.0', '1.4.0', 'name: x', '1.4.0', 'header'],
    ['1.4.0', undefined, 'name: x', '1.4.0', 'requested'],
    ['1.4.0', 'v1.4.0', undefined, 'v1.4.0', 'header'],
    [undefined, '1.4.0', undefined, '1.4.0', 'header'],
    [undefined, 'v1.4.0', 'version: 1.4.0', '1.4.0', 'plugin.yaml'],
    ['1.4.0', '1.4.1', undefined, '1.4.1', 'header'],
    ['1.4.0', '1.4.1', 'name: x', '1.4.1', 'header'],
    ['1.4.0', undefined, undefined, '1.4.0', 'requested'],
  ]
  for (const [asked, header, yaml, version, source] of decided) {
    it(`asked ${asked}, header ${header}, ${yaml}: ${version} (${source})`, () => {
      const plugin = yaml === undefined ? undefined : parsePluginYaml(yaml)
      assert.deepEqual(decideVersion(claims(asked, header), plugin), { version, source })
    })
  }

  const refused: [string | undefined, string | undefined, string | undefined, string][] = [
    ['1.4.0', undefined, 'version: "1.4.1"', 'version_mismatch'],
    ['1.4.0', '1.4.0', 'version: "1.4.1"', 'version_mismatch'],
    [undefined, '1.4.0', 'version: "1.4.1"', 'version_mismatch'],
    ['1.10', '1.10', 'version: 1.10', 'version_mismatch'],
    [undefined, undefined, 'version: "../../x"', 'version_mismatch'],
    [undefined, undefined, 'version: ""', 'version_mismatch'],
    [undefined, undefined, undefined, 'no_published_version'],
    [undefined, undefined, 'name: x', 'no_published_version'],
  ]
  for (const [asked, header, yaml, code] of refused) {
    it(`asked ${asked}, header ${header}, ${yaml}: ${code}`, () => {
      const plugin = yaml === undefined ? undefined : parsePluginYaml(yaml)
      assert.throws(() => decideVersion(claims(asked, header), plugin), refusedWith(code))
    })
  }

  it('says whether plugin.yaml names another version or an invalid one', () => {
    const wrong = parsePluginYaml('version: "../../x"')
    const invalid =
      /^The artifact's plugin\.yaml says version "\.\.\/\.\.\/x", which no hub or host accepts as a version: /
    assert.throws(() => decideVersion(claims(undefined, undefined), wrong), { message: invalid })
    const other = /^The requested version is 1\.4\.0, but the artifact's plugin\.yaml says "\.\.\/\.\.\/x": /
    assert.throws(() => decideVersion(claims('1.4.0', undefined), wrong), { message: other })
  })

  it('says why a number is another version than the requested one', () => {
    const message = /plugin\.yaml says "1\.1" \(without quotes, it is a number, and loses its final zeros\): /
    assert.throws(() => decideVersion(claims('1.10', undefined), parsePluginYaml('version: 1.10')), { message })
  })

  it('uses the listed version for latest only if neither the header nor plugin.yaml names one', () => {
    const yaml = parsePluginYaml('version: 1.3.0')
    const listed = (header?: string) => claims(undefined, header, '1.4.0')
    assert.deepEqual(decideVersion(listed(), undefined), { version: '1.4.0', source: 'requested' })
    assert.deepEqual(decideVersion(listed('1.2.0'), undefined), { version: '1.2.0', source: 'header' })
    assert.deepEqual(decideVersion(listed(), yaml), { version: '1.3.0', source: 'plugin.yaml' })
  })
})
