import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { appendFileSync, existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { holdVersion, releaseVersion, yankVersion } from '../../../hub/marketplace/catalogue.ts'
import { buildZip, file, PROGRAM, type ZipItem } from '../../archives/zip-builder.ts'
import { whyLeftToCi } from '../../extent.ts'
import { listTree } from '../../folders.ts'
import { acceptedReports, commandsIn, listHost, listOwn, readLocalReport } from '../harness/evidence.ts'
import { assertNoSecret, assertRefuses } from '../harness/refusal.ts'
import { openInstalled, openStage, PLUGIN_PLAN, pluginFiles, SERVICE_PLAN, type Stage } from '../harness/stage.ts'
import { type Answer, answerJson, pluginZip, serveArtifact, serveUntrustedHub } from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
})
afterEach(() => stage.close())

/** Continues on a host where 1.0.0 is installed. */
async function beginInstalled(): Promise<void> {
  await stage.close()
  stage = await openInstalled(pluginFiles('1.0.0'))
}

/** Runs a deployment that must succeed, and returns its outputs. */
async function deployed(inputs: Record<string, string> = {}): Promise<Record<string, string>> {
  const result = await stage.deploy(inputs)
  assert.equal(result.exitCode, 0, result.log)
  assert.equal(commandsIn(result.log, 'error').length, 0)
  assertNoSecret(stage, result)
  return result.outputs
}

/** The version that a file of the installed plugin names. */
function runningVersion(id = 'greeter'): string {
  return /hello from (\S+)"/.exec(readFileSync(join(stage.root, 'plugins', id, 'src/main.py'), 'utf8'))?.[1] ?? ''
}

function installedRows(): { id: string; version: string; snapshots: { name: string }[] }[] {
  return JSON.parse(readFileSync(join(stage.root, '.hub-deploy/installed.json'), 'utf8')).installed
}

describe('a first deployment', () => {
  it('installs exactly the files of the artifact and reports it everywhere', async () => {
    const outputs = await deployed()
    assert.deepEqual(listTree(join(stage.root, 'plugins')), {
      greeter: '755 directory',
      'greeter/plugin.yaml': `644 ${pluginFiles('1.0.0')['plugin.yaml']}`,
      'greeter/src': '755 directory',
      'greeter/src/main.py': `644 ${pluginFiles('1.0.0')['src/main.py']}`,
    })
    const { 'deployment-id': id, 'duration-ms': duration, 'report-path': reportPath, ...rest } = outputs
    assert.match(id ?? '', /^[0-9a-f-]{36}$/)
    assert.match(duration ?? '', /^\d+$/)
    assert.equal(reportPath, join(stage.root, '.hub-deploy/reports', listOwn(stage, 'reports')[0] ?? ''))
    assert.deepEqual(rest, {
      outcome: 'success',
      changed: 'true',
      version: '1.0.0',
      'previous-version': '',
      'running-version': '1.0.0',
      'artifact-sha256': servedSha256('1.0.0'),
      'host-id': 'host-1',
      'install-path': join(stage.root, 'plugins/greeter'),
      reported: 'true',
      'failed-step': '',
      'error-code': '',
      state: 'succeeded',
    })
    assert.deepEqual(
      installedRows().map(row => [row.id, row.version]),
      [['greeter', '1.0.0']],
    )
    assert.deepEqual(
      acceptedReports(stage).map(row => [row.kind, row.slug, row.version, row.status, row.host_id]),
      [['plugin', 'greeter', '1.0.0', 'success', 'host-1']],
    )
  })

  it('leaves its private folder behind, without anything that only the run needed', { skip: ONLY_IN_CI }, async () => {
    await beginInstalled()
    assert.equal(statSync(join(stage.root, '.hub-deploy')).mode & 0o777, 0o700)
    assert.deepEqual(
      listOwn(stage, '.').filter(name => name !== 'trees'),
      ['audit.jsonl', 'installed.json', 'kernel-lock', 'outbox', 'reports', 'reserve', 'snapshots', 'staging', 'trash'],
    )
    for (const folder of ['outbox', 'snapshots', 'staging', 'trash']) assert.deepEqual(listOwn(stage, folder), [])
    assert.deepEqual(
      readdirSync(stage.workspace.temp).filter(name => !name.startsWith('commands-')),
      [],
    )
  })

  it('creates a project root whose parent exists, with a notice', async () => {
    const root = join(stage.workspace.path, 'new-host')
    const result = await stage.deploy({ 'project-root': root })
    assert.equal(result.exitCode, 0, result.log)
    assert.ok(existsSync(join(root, 'plugins/greeter/plugin.yaml')))
    assert.equal(commandsIn(result.log, 'notice').length, 1)
  })

  it('keeps the existing directory when it was not installed by a deployment', async () => {
    const path = join(stage.root, 'plugins/greeter')
    await deployed()
    rmSync(join(stage.root, '.hub-deploy'), { recursive: true })
    appendFileSync(join(path, 'by-hand'), 'precious')
    await deployed({ 'keep-snapshots': '0' })
    const [snapshot] = listOwn(stage, 'snapshots/plugins/greeter')
    const kept = join(stage.root, '.hub-deploy/snapshots/plugins/greeter', snapshot ?? '', 'by-hand')
    assert.equal(readFileSync(kept, 'utf8'), 'precious')
  })
})

describe('an update', () => {
  it('replaces the old version and retains it as a snapshot', async () => {
    await beginInstalled()
    const old = listTree(join(stage.root, 'plugins/greeter'))
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'src/new.py': '' }))
    const outputs = await deployed()
    assert.deepEqual(
      [outputs['version'], outputs['previous-version'], outputs['changed'], runningVersion()],
      ['1.1.0', '1.0.0', 'true', '1.1.0'],
    )
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), ['1-1.0.0'])
    assert.deepEqual(listTree(join(stage.root, '.hub-deploy/snapshots/plugins/greeter/1-1.0.0')), old)
  })

  it('retains nothing when no step asks for a snapshot', { skip: ONLY_IN_CI }, async () => {
    stage.writePlan(PLUGIN_PLAN.replace('snapshot: true, ', ''))
    await deployed()
    await stage.publish('1.1.0', pluginFiles('1.1.0'))
    await deployed()
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), [])
    assert.equal(runningVersion(), '1.1.0')
  })

  it('removes the oldest snapshots beyond keep-snapshots, never the last good one', { skip: ONLY_IN_CI }, async () => {
    await beginInstalled()
    for (const version of ['1.1.0', '1.2.0', '1.3.0']) {
      await stage.publish(version, pluginFiles(version))
      await deployed({ 'keep-snapshots': '2' })
    }
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), ['2-1.1.0', '3-1.2.0'])
    assert.deepEqual(
      installedRows()[0]?.snapshots.map(({ name }) => name),
      ['2-1.1.0', '3-1.2.0'],
    )
    await stage.publish('1.4.0', pluginFiles('1.4.0'))
    await deployed({ 'keep-snapshots': '0' })
    assert.deepEqual(listOwn(stage, 'snapshots/plugins/greeter'), ['4-1.3.0'])
  })
})

describe('a second deployment of the same version', () => {
  it('changes nothing and is still reported', async () => {
    await beginInstalled()
    const before = listHost(stage.root)
    const { mtimeMs, ino } = statSync(join(stage.root, 'plugins/greeter/src/main.py'))
    const outputs = await deployed()
    assert.deepEqual(
      [outputs['outcome'], outputs['changed'], outputs['previous-version']],
      ['success', 'false', '1.0.0'],
    )
    assert.deepEqual(listHost(stage.root), before)
    const after = statSync(join(stage.root, 'plugins/greeter/src/main.py'))
    assert.deepEqual([after.mtimeMs, after.ino], [mtimeMs, ino])
    assert.equal(acceptedReports(stage).length, 2)
  })

  it('repairs files that were changed or removed on the host', { skip: ONLY_IN_CI }, async () => {
    await beginInstalled()
    const installed = listTree(join(stage.root, 'plugins'))
    appendFileSync(join(stage.root, 'plugins/greeter/src/main.py'), '# tampered\n')
    rmSync(join(stage.root, 'plugins/greeter/plugin.yaml'))
    assert.equal((await deployed())['changed'], 'true')
    assert.deepEqual(listTree(join(stage.root, 'plugins')), installed)
  })
})

describe('the choice of a version', () => {
  beforeEach(async () => {
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
    await deployed()
    assert.equal(runningVersion(), '2.0.0')
    yankVersion(stage.store, { kind: 'plugin', slug: 'greeter', version: '2.0.0' })
  })

  it('does not downgrade to an older latest version', async () => {
    await assertRefuses(stage, { code: 'downgrade_refused', during: 'verifying_signature' })
    assert.equal(runningVersion(), '2.0.0')
  })

  it('downgrades when the operator allows it', async () => {
    const outputs = await deployed({ 'allow-downgrade': 'true' })
    assert.deepEqual([outputs['version'], outputs['previous-version'], runningVersion()], ['1.0.0', '2.0.0', '1.0.0'])
  })

  it('downgrades when the operator names the version', { skip: ONLY_IN_CI }, async () => {
    const outputs = await deployed({ version: '1.0.0' })
    assert.deepEqual([outputs['version'], outputs['previous-version'], runningVersion()], ['1.0.0', '2.0.0', '1.0.0'])
  })

  it('does not reinstall bytes that it has replaced, even if the hub calls them newer', {
    skip: ONLY_IN_CI,
  }, async t => {
    await deployed({ version: '1.0.0' })
    const hub = await serveRenamed(t, '1.0.0', '3.0.0')
    await stage.publish('1.1.0', pluginFiles('1.1.0'))
    await deployed({ version: '1.1.0', 'keep-snapshots': '0' })
    await assertRefuses(
      stage,
      { code: 'downgrade_refused', during: 'verifying_signature' },
      { 'hub-url': hub.url, 'deployments-url': stage.hub.url },
    )
    assert.equal(runningVersion(), '1.1.0')
  })

  it('treats a version published with a "v" as the one that its plugin.yaml names without it', {
    skip: ONLY_IN_CI,
  }, async () => {
    await stage.publish('v2.1.0', pluginFiles('2.1.0'))
    const outputs = await deployed({ version: 'v2.1.0' })
    assert.deepEqual([outputs['outcome'], outputs['state'], runningVersion()], ['success', 'succeeded', '2.1.0'])
  })
})

describe('versions that are dates', () => {
  it('are not downgraded by latest', { skip: ONLY_IN_CI }, async () => {
    for (const version of ['2023.01.02', '2024.05.01']) await stage.publish(version, pluginFiles(version))
    await deployed({ version: '2024.05.01' })
    yankVersion(stage.store, { kind: 'plugin', slug: 'greeter', version: '2024.05.01' })
    yankVersion(stage.store, { kind: 'plugin', slug: 'greeter', version: '1.0.0' })
    await assertRefuses(stage, { code: 'downgrade_refused', during: 'verifying_signature' })
    assert.equal(runningVersion(), '2024.05.01')
    await stage.publish('2024.10.01', pluginFiles('2024.10.01'))
    assert.equal((await deployed())['version'], '2024.10.01')
  })

  it('are not replaced by a latest version that cannot be compared with them', { skip: ONLY_IN_CI }, async () => {
    await stage.publish('2024.05.01', pluginFiles('2024.05.01'))
    await deployed({ version: '2024.05.01' })
    await stage.publish('nightly-7', pluginFiles('nightly-7'))
    for (const version of ['2024.05.01', '1.0.0'])
      yankVersion(stage.store, { kind: 'plugin', slug: 'greeter', version })
    await assertRefuses(stage, { code: 'downgrade_refused', during: 'verifying_signature' })
    assert.equal((await deployed({ 'allow-downgrade': 'true' }))['version'], 'nightly-7')
  })
})

/** Serves the artifact of version `old` under the version `name`, which is newer. */
function serveRenamed(t: Parameters<typeof serveUntrustedHub>[0], old: string, name: string) {
  return serveUntrustedHub(t, {
    detail: answerJson(200, { latest_version: name }),
    async artifact(response, request) {
      const headers = { 'x-api-key': String(request.headers['x-api-key']) }
      const served = await fetch(`${stage.hub.url}${request.url?.replace('latest', old)}`, { headers })
      const renamed = { ...Object.fromEntries(served.headers), 'x-plugin': `greeter@${name}` }
      response.writeHead(served.status, renamed).end(Buffer.from(await served.arrayBuffer()))
    },
  })
}

describe('a latest version that the hub holds back for review', () => {
  const held = { kind: 'plugin', slug: 'greeter', version: '2.0.0' } as const
  beforeEach(async () => {
    await stage.publish('2.0.0', pluginFiles('2.0.0'))
    holdVersion(stage.store, held)
  })

  it('is not installed: the host gets the version that the hub serves, and a notice names both', async () => {
    const result = await stage.deploy()
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual([result.outputs['version'], runningVersion()], ['1.0.0', '1.0.0'])
    assert.match(commandsIn(result.log, 'notice').join(), /2\.0\.0.*1\.0\.0/)
    assert.equal((await deployed())['changed'], 'false')
    releaseVersion(stage.store, held)
    assert.equal((await deployed())['version'], '2.0.0')
  })

  it('is refused if it is the only version, and if it is requested by name', async () => {
    yankVersion(stage.store, { ...held, version: '1.0.0' })
    for (const version of ['latest', '2.0.0'])
      await assertRefuses(stage, { code: 'not_found', during: 'fetching' }, { version })
  })
})

describe('a private plugin', () => {
  it('is deployed as latest, and its second deployment changes nothing', async t => {
    const hub = await serveUntrustedHub(t, {
      detail: answerJson(404, { error: 'no such plugin' }),
      artifact: serveArtifact(pluginZip(), { 'x-plugin': 'greeter@2.0.0' }),
    })
    for (const changed of ['true', 'false']) {
      const outputs = await deployed({ 'hub-url': hub.url })
      assert.deepEqual([outputs['version'], outputs['changed']], ['2.0.0', changed])
    }
    assert.deepEqual(hub.requests.map(({ url }) => url).slice(0, 2), [
      '/plugins/greeter',
      '/plugins/greeter/install?version=latest',
    ])
  })
})

describe('a version with different bytes than before', () => {
  const files = pluginFiles('1.0.0', { 'src/more.py': '' })

  it('is accepted when exactly these bytes are pinned with redeploy, and not with the pin alone', async () => {
    await beginInstalled()
    await stage.publish('1.0.0', files, { replace: true })
    await assertRefuses(stage, { code: 'version_reused', during: 'extracting' })
    const pin = { 'artifact-sha256': servedSha256('1.0.0').toUpperCase() }
    const refusal = { code: 'version_reused', during: 'extracting' } as const
    for (const inputs of [pin, { ...pin, version: '1.0.0' }, { redeploy: 'true' }])
      await assertRefuses(stage, refusal, inputs)
    const outputs = await deployed({ ...pin, redeploy: 'true' })
    assert.deepEqual([outputs['version'], outputs['changed']], ['1.0.0', 'true'])
    assert.ok(existsSync(join(stage.root, 'plugins/greeter/src/more.py')))
  })

  it('is refused even after another version was installed in between', { skip: ONLY_IN_CI }, async () => {
    await beginInstalled()
    await stage.publish('1.1.0', pluginFiles('1.1.0'))
    await deployed()
    await stage.publish('1.0.0', files, { replace: true })
    await assertRefuses(stage, { code: 'version_reused', during: 'extracting' }, { version: '1.0.0' })
  })
})

describe('a version that a hub packs anew for each request', () => {
  const main = file('src/main.py', 'print("hello from 1.0.0")\n')
  const yaml = file('plugin.yaml', 'name: greeter\nversion: "1.0.0"\n')
  const packings = {
    first: [yaml, main],
    second: [main, yaml],
    third: [yaml, main].map(item => ({ ...item, name: `greeter-0a1b2c3/${item.name}` })),
  }

  it('changes nothing while paths, modes and bytes are the same, whatever the order and the times of the requests', async t => {
    let served = packings.first
    const artifact: Answer = (response, request) => serveArtifact(buildZip(served))(response, request)
    const hub = await serveUntrustedHub(t, { artifact, detail: answerJson(200, { latest_version: '1.0.0' }) })
    for (const [packing, changed] of [
      ['first', 'true'],
      ['second', 'false'],
      ['first', 'false'],
      ['third', 'false'],
      ['third', 'false'],
    ] as const) {
      served = packings[packing]
      const outputs = await deployed({ 'hub-url': hub.url })
      assert.deepEqual([outputs['version'], outputs['changed']], ['1.0.0', changed], packing)
    }
  })

  for (const [name, items] of Object.entries({
    'another byte': [yaml, file('src/main.py', 'print("hello from 1.0.1")\n')],
    'another mode': [yaml, { ...main, mode: PROGRAM }],
    'another path': [yaml, main, file('src/more.py', '')],
    'a file less': [yaml],
  }))
    it(`is refused with ${name}`, async t => {
      let served: readonly ZipItem[] = packings.first
      const artifact: Answer = (response, request) => serveArtifact(buildZip(served))(response, request)
      const hub = await serveUntrustedHub(t, { artifact, detail: answerJson(200, { latest_version: '1.0.0' }) })
      await deployed({ 'hub-url': hub.url })
      served = items
      const inputs = { 'hub-url': hub.url, 'deployments-url': stage.hub.url }
      await assertRefuses(stage, { code: 'version_reused', during: 'extracting' }, inputs)
    })
})

describe('a service', () => {
  it('is installed as an extension without a plugin.yaml, with the version that the header names', async () => {
    await stage.publish('3.1.0', { 'clock.py': 'tick' }, { kind: 'service', slug: 'clock' })
    stage.writePlan(SERVICE_PLAN)
    const result = await stage.deploy({ kind: 'service', slug: 'clock', 'plugin-secret-key': 'secret of the host' })
    assert.equal(result.exitCode, 0, result.log)
    assertNoSecret(stage, result, ['secret of the host'])
    assert.deepEqual(listTree(join(stage.root, 'extensions')), { clock: '755 directory', 'clock/clock.py': '644 tick' })
    assert.match(commandsIn(result.log, 'notice').join(), /plugin-secret-key/)
    const { kind, id, version, version_source } = readLocalReport(result)
    assert.deepEqual([kind, id, version, version_source], ['service', 'clock', '3.1.0', 'header'])
    assert.equal(acceptedReports(stage)[0]?.kind, 'service')
  })

  it('comes from services-url, and its report goes to deployments-url', async t => {
    const [services, deployments] = [await serveUntrustedHub(t), await serveUntrustedHub(t)]
    stage.writePlan(SERVICE_PLAN)
    const urls = {
      'hub-url': 'https://hub.example',
      'services-url': `${services.url}/at/`,
      'deployments-url': deployments.url,
    }
    const result = await stage.deploy({ kind: 'service', slug: 'clock', ...urls })
    assert.equal(result.exitCode, 0, result.log)
    assert.deepEqual(
      services.requests.map(({ url }) => url),
      ['/at/services/clock', '/at/services/clock/install?version=latest'],
    )
    assert.deepEqual(
      deployments.requests.map(({ method, url }) => [method, url]),
      [['POST', '/deployments/report']],
    )
  })
})

function servedSha256(version: string): string {
  const row = stage.store.db.prepare('SELECT sha256 FROM versions WHERE version = ?').get(version)
  const sha256 = String(row?.['sha256'])
  const bytes = readFileSync(join(stage.store.dataDir, 'artifacts', sha256))
  assert.equal(createHash('sha256').update(bytes).digest('hex'), sha256)
  return sha256
}
