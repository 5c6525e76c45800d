import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { DeployError } from '../../src/core/errors.ts'
import { fetchArtifact } from '../../src/marketplace/fetch-artifact.ts'
import { type Handler, serve } from '../net/loopback-server.ts'
import { artifactRequest } from './open-artifact-file.ts'
import { startedRun } from './started-run.ts'

/** Lists 2.0.0 as its latest and serves only these versions. */
function hubServing(...versions: string[]): Handler {
  return (request, response) => {
    const wanted = new URL(request.url ?? '', 'http://hub').searchParams.get('version')
    if (wanted === null) response.end('{"latest_version":"2.0.0"}')
    else if (versions.includes(wanted)) response.writeHead(200, { 'X-Plugin': 'greeter@1.9.0' }).end('zip')
    else response.writeHead(404).end('{"error":"gone"}')
  }
}

function refusedWith(code: string) {
  return (error: unknown): boolean => error instanceof DeployError && error.code === code
}

describe('fetchArtifact', () => {
  it('asks for latest, then fetches that version', async t => {
    const server = await serve(t, hubServing('2.0.0'))
    const { run, log } = startedRun(t, server.url)
    const { asked } = await fetchArtifact(run, artifactRequest(t, '').fd, null)
    assert.equal(asked, '2.0.0')
    assert.deepEqual(
      server.requests.map(({ url }) => url),
      ['/plugins/greeter', '/plugins/greeter/install?version=2.0.0'],
    )
    assert.ok(!log.lines.some(line => line.startsWith('notice')))
  })

  it('fetches a given version without asking which is the latest', async t => {
    const server = await serve(t, hubServing('1.0.0'))
    const { run } = startedRun(t, server.url, { version: '1.0.0' })
    assert.equal((await fetchArtifact(run, artifactRequest(t, '').fd, '9.0.0')).asked, '1.0.0')
    assert.deepEqual(
      server.requests.map(({ url }) => url),
      ['/plugins/greeter/install?version=1.0.0'],
    )
  })

  it('takes what the hub serves as latest where the listed one is not served', async t => {
    const server = await serve(t, hubServing('latest'))
    const { run } = startedRun(t, server.url)
    const { asked, served, unserved } = await fetchArtifact(run, artifactRequest(t, '').fd, null)
    assert.deepEqual([asked, served.headerVersion, unserved], [undefined, '1.9.0', '2.0.0'])
    assert.deepEqual([run.record.facts.version, run.record.facts.version_source], [null, null])
    assert.deepEqual(
      server.requests.map(({ url }) => url?.split('version=')[1]),
      [undefined, '2.0.0', 'latest'],
    )
  })

  it('asks only once more', async t => {
    const server = await serve(t, hubServing())
    const { run } = startedRun(t, server.url)
    await assert.rejects(fetchArtifact(run, artifactRequest(t, '').fd, null), refusedWith('not_found'))
    assert.equal(server.requests.length, 3)
  })

  it('does not fall back for a version that was named', async t => {
    const server = await serve(t, hubServing('latest'))
    const { run } = startedRun(t, server.url, { version: '1.0.0' })
    await assert.rejects(fetchArtifact(run, artifactRequest(t, '').fd, null), refusedWith('not_found'))
    assert.equal(server.requests.length, 1)
  })

  it('refuses a download that the temporary folder has no room for, at its first bytes', async t => {
    const server = await serve(t, (_, response) => {
      response.writeHead(200, { 'content-length': String(2 ** 52) }).write('zip')
    })
    const { run } = startedRun(t, server.url, { version: '1.0.0', maxArtifactBytes: 2 ** 53 })
    await assert.rejects(fetchArtifact(run, artifactRequest(t, '').fd, null), refusedWith('disk_full'))
    assert.equal(server.requests.length, 1)
  })

  it('refuses an older latest before it is fetched, unless that is allowed', async t => {
    const server = await serve(t, hubServing('2.0.0'))
    const refused = startedRun(t, server.url).run
    await assert.rejects(fetchArtifact(refused, artifactRequest(t, '').fd, '2.1.0'), refusedWith('downgrade_refused'))
    assert.equal(server.requests.length, 1)
    const allowed = startedRun(t, server.url, { allowDowngrade: true }).run
    assert.equal((await fetchArtifact(allowed, artifactRequest(t, '').fd, '2.1.0')).asked, '2.0.0')
  })
})
