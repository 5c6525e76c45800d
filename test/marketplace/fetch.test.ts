import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { DeployError } from '../../src/core/errors.ts'
import { runToEnd } from '../../src/core/pausing-work.ts'
import type { ArtifactDeployment } from '../../src/marketplace/deployment.ts'
import { fetchArtifact } from '../../src/marketplace/fetch.ts'
import { readyArtifactPlan } from '../../src/marketplace/plan.ts'
import { previousOf } from '../install/prepared-deployment.ts'
import { type Handler, serve } from '../net/loopback-server.ts'
import { artifactRequest } from './gate/open-artifact-file.ts'
import { startedDeployment } from './started-deployment.ts'

/** Lists 2.0.0 as its latest and serves only these versions. */
function hubServing(...versions: string[]): Handler {
  return (request, response) => {
    const wanted = new URL(request.url ?? '', 'http://hub').searchParams.get('version')
    if (wanted === null) response.end('{"latest_version":"2.0.0"}')
    else if (versions.includes(wanted)) response.writeHead(200, { 'X-Plugin': 'greeter@1.9.0' }).end('zip')
    else response.writeHead(404).end('{"error":"gone"}')
  }
}

/** Fetches the artifact for a host where this version is installed. */
async function fetchOver(t: TestContext, deployment: ArtifactDeployment, installed: string | null) {
  const previous = previousOf({ shelf: deployment.shelf, id: deployment.request.slug }, { version: installed })
  const target = { plan: runToEnd(readyArtifactPlan(deployment.request)), previous }
  return await fetchArtifact(deployment, target, artifactRequest(t, '').fd)
}

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeployError && error.code === code
}

describe('fetchArtifact', () => {
  it('asks for the latest version, then fetches that one', async t => {
    const server = await serve(t, hubServing('2.0.0'))
    const { deployment, log } = startedDeployment(t, server.url)
    const { asked } = await fetchOver(t, deployment, null)
    assert.equal(asked, '2.0.0')
    assert.deepEqual(
      server.requests.map(({ url }) => url),
      ['/plugins/greeter', '/plugins/greeter/install?version=2.0.0'],
    )
    assert.ok(!log.lines.some(line => line.startsWith('notice')))
  })

  it('fetches a requested version without asking for the latest one', async t => {
    const server = await serve(t, hubServing('1.0.0'))
    const { deployment } = startedDeployment(t, server.url, { version: '1.0.0' })
    assert.equal((await fetchOver(t, deployment, '9.0.0')).asked, '1.0.0')
    assert.deepEqual(
      server.requests.map(({ url }) => url),
      ['/plugins/greeter/install?version=1.0.0'],
    )
  })

  it('fetches what the hub serves as latest when the hub does not serve the version it lists', async t => {
    const server = await serve(t, hubServing('latest'))
    const { deployment } = startedDeployment(t, server.url)
    const { asked, served, unserved } = await fetchOver(t, deployment, null)
    assert.deepEqual([asked, served.headerVersion, unserved], [undefined, '1.9.0', '2.0.0'])
    assert.partialDeepStrictEqual(deployment.record.facts, { version: null, version_source: null })
    assert.deepEqual(
      server.requests.map(({ url }) => url?.split('version=')[1]),
      [undefined, '2.0.0', 'latest'],
    )
  })

  it('falls back only once', async t => {
    const server = await serve(t, hubServing())
    const { deployment } = startedDeployment(t, server.url)
    await assert.rejects(fetchOver(t, deployment, null), refusedWith('not_found'))
    assert.equal(server.requests.length, 3)
  })

  it('does not fall back for a requested version', async t => {
    const server = await serve(t, hubServing('latest'))
    const { deployment } = startedDeployment(t, server.url, { version: '1.0.0' })
    await assert.rejects(fetchOver(t, deployment, null), refusedWith('not_found'))
    assert.equal(server.requests.length, 1)
  })

  it('refuses a download at its first bytes when the temporary folder has no room for it', async t => {
    const server = await serve(t, (_, response) => {
      response.writeHead(200, { 'content-length': String(2 ** 52) }).write('zip')
    })
    const { deployment } = startedDeployment(t, server.url, { version: '1.0.0', maxArtifactBytes: 2 ** 53 })
    await assert.rejects(fetchOver(t, deployment, null), refusedWith('disk_full'))
    assert.equal(server.requests.length, 1)
  })

  it('refuses a latest version older than the installed one before fetching it, unless downgrades are allowed', async t => {
    const server = await serve(t, hubServing('2.0.0'))
    const refused = startedDeployment(t, server.url).deployment
    await assert.rejects(fetchOver(t, refused, '2.1.0'), refusedWith('downgrade_refused'))
    assert.equal(server.requests.length, 1)
    const allowed = startedDeployment(t, server.url, { allowDowngrade: true }).deployment
    assert.equal((await fetchOver(t, allowed, '2.1.0')).asked, '2.0.0')
  })
})
