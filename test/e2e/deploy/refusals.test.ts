import assert from 'node:assert/strict'
import { existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { createKey } from '../../../hub/access.ts'
import { yankVersion } from '../../../hub/marketplace/catalogue.ts'
import { acquireLock } from '../../../src/install/host/lock.ts'
import { HOSTILE_ZIPS } from '../../archives/hostile-zips.ts'
import { buildZip, file } from '../../archives/zip-builder.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { CLOSED_PORT } from '../../net/loopback-server.ts'
import { commandsIn, listOwn, readLocalReport } from '../harness/evidence.ts'
import { assertRefuses, WRONG_PLUGINS, WRONGLY_SIGNED } from '../harness/refusal.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage } from '../harness/stage.ts'
import { answerJson, pluginZip, serveArtifact, serveUntrustedHub, VERSION } from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()
const PRELOADED = join(import.meta.dirname, '../harness/signal-at-file.mjs')

let stage: Stage

/** A host that runs 1.0.0, and a hub whose latest version is 2.0.0. */
before(async () => {
  stage = await openStage()
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
  assert.equal((await stage.deploy()).exitCode, 0)
  await stage.publish(VERSION, pluginFiles(VERSION))
})

after(() => stage.close())

describe('a hub that does not serve the artifact', () => {
  const reporting = () => ({ 'deployments-url': stage.hub.url })

  it('is not asked at all over plain http', async () => {
    const refusal = { code: 'insecure_url', during: 'pending', reported: false } as const
    await assertRefuses(stage, refusal, { 'hub-url': 'http://hub.example' })
  })

  it('is given up when nothing listens', { skip: ONLY_IN_CI }, async () => {
    const url = `http://127.0.0.1:${CLOSED_PORT}`
    await assertRefuses(stage, { code: 'network', during: 'fetching' }, { ...reporting(), 'hub-url': url })
  })

  it('is given up when it keeps answering 500', { skip: ONLY_IN_CI }, async t => {
    const hub = await serveUntrustedHub(t, { artifact: answerJson(500, { error: 'out of order' }) })
    const refusal = { code: 'artifact_unavailable', during: 'fetching' } as const
    const { log } = await assertRefuses(stage, refusal, { ...reporting(), 'hub-url': hub.url })
    assert.match(commandsIn(log, 'error')[0] ?? '', /500.*out of order/)
    assert.equal(hub.requestsFor('artifact').length, 4)
  })

  it('may have no such plugin', async () => {
    stage.writePlan(PLUGIN_PLAN.replace('project_id: greeter', 'project_id: nobody'))
    await assertRefuses(stage, { code: 'not_found', during: 'fetching' }, { slug: 'nobody', 'allow-takeover': 'true' })
    stage.writePlan(PLUGIN_PLAN)
  })

  it('may have no such version', async () => {
    await assertRefuses(stage, { code: 'not_found', during: 'fetching' }, { version: '9.9.9' })
  })

  it('may have no published version', async () => {
    await stage.publish('1.0.0', pluginFiles('1.0.0'), { slug: 'empty' })
    yankVersion(stage.store, { kind: 'plugin', slug: 'empty', version: '1.0.0' })
    stage.writePlan(PLUGIN_PLAN.replace('project_id: greeter', 'project_id: empty'))
    await assertRefuses(
      stage,
      { code: 'no_published_version', during: 'fetching' },
      { slug: 'empty', 'allow-takeover': 'true' },
    )
    stage.writePlan(PLUGIN_PLAN)
  })

  it('may answer with something other than a detail record', { skip: ONLY_IN_CI }, async t => {
    const hub = await serveUntrustedHub(t, { detail: answerJson(200, ['2.0.0']) })
    await assertRefuses(stage, { code: 'bad_response', during: 'fetching' }, { ...reporting(), 'hub-url': hub.url })
  })

  it('may not know the key', async () => {
    const refusal = { code: 'authentication_failed', during: 'fetching', reported: false } as const
    const { log } = await assertRefuses(stage, refusal, { 'api-key': 'secret-nobody-issued' })
    assert.doesNotMatch(log.replace(/^::add-mask::.*$/gm, ''), /secret-nobody-issued/)
    assert.match(commandsIn(log, 'error')[0] ?? '', /401/)
    assert.equal(listOwn(stage, 'outbox').length, 1)
  })

  it('may have issued the key for another plugin', { skip: ONLY_IN_CI }, async () => {
    const { key } = createKey(stage.store, { name: 'bound', kind: 'plugin', slug: 'clock' })
    const refusal = { code: 'authentication_failed', during: 'fetching', reported: false } as const
    const { log } = await assertRefuses(stage, refusal, { 'api-key': key })
    assert.match(commandsIn(log, 'error')[0] ?? '', /403.*bound to the plugin clock.*a key for each/)
    assert.doesNotMatch(log.replaceAll(`::add-mask::${key}`, ''), new RegExp(key))
  })
})

describe('an artifact that does not match its signature', () => {
  for (const [name, [bytes, header, code]] of sampled(Object.entries(WRONGLY_SIGNED), 2)) {
    it(`is refused: ${name}`, async t => {
      const hub = await serveUntrustedHub(t, { artifact: serveArtifact(bytes, { 'x-signature': header }) })
      await assertRefuses(
        stage,
        { code, during: 'verifying_signature' },
        { 'hub-url': hub.url, 'deployments-url': stage.hub.url },
      )
    })
  }

  it('is refused when it was signed with another secret', async () => {
    const refusal = { code: 'signature_mismatch', during: 'verifying_signature' } as const
    await assertRefuses(stage, refusal, { 'signing-secret': 'secret of somebody else' })
  })

  it('is refused when other bytes are pinned', async () => {
    const refusal = { code: 'digest_mismatch', during: 'verifying_signature' } as const
    await assertRefuses(stage, refusal, { 'artifact-sha256': 'ab'.repeat(32) })
  })
})

describe('an archive that must not be extracted', () => {
  const refused = [
    'unsafe_archive--dotdot-first',
    'unsafe_archive--absolute',
    'unsafe_archive--symlink-escapes',
    'unsafe_archive--below-a-symlink',
    'unsafe_archive--same-file-twice',
    'unsafe_archive--escape',
    'invalid_archive--not-a-zip',
    'empty_artifact--only-directories',
  ]
  for (const hostile of sampled(
    HOSTILE_ZIPS.filter(({ name }) => refused.includes(name)),
    2,
  )) {
    it(`is refused: ${hostile.name}`, async () => {
      await stage.publishBytes(VERSION, hostile.bytes(), { replace: true })
      const code = hostile.name.split('--')[0] as 'unsafe_archive'
      await assertRefuses(stage, { code, during: 'extracting' })
    })
  }

  const wrong: Record<string, Buffer> = {
    not_a_plugin: buildZip([file('src/main.py'), file('README.md')]),
    version_mismatch: pluginZip('7.0.0'),
  }
  for (const [code, bytes] of Object.entries(wrong)) {
    it(`is refused before any of its files is written: ${code}`, async () => {
      await stage.publishBytes(VERSION, bytes, { replace: true })
      // The signal would come with the first of these files.
      const env = { NODE_OPTIONS: `--import=${PRELOADED}`, SIGNAL: 'SIGKILL', AT_FILE: '/src/main.py' }
      const { signal, outputs, log } = await stage.deploy({}, { env })
      assert.deepEqual([signal, outputs['error-code']], [null, code], log)
    })
  }

  it('is refused if only the content of a file is wrong', async () => {
    const wrong = { ...file('wrong'), both: { crc: 1 } }
    await stage.publishBytes(VERSION, pluginZip(VERSION, [wrong]), { replace: true })
    await assertRefuses(stage, { code: 'invalid_archive', during: 'extracting' })
  })

  const limits: Record<string, string> = {
    'max-artifact-bytes': 'fetching',
    'max-extracted-bytes': 'extracting',
    'max-entries': 'extracting',
  }
  for (const [input, during] of sampled(Object.entries(limits), 1)) {
    it(`is refused beyond ${input}`, async () => {
      await stage.publish(VERSION, pluginFiles(VERSION), { replace: true })
      await assertRefuses(stage, { code: 'archive_too_large', during }, { [input]: '1' })
    })
  }
})

describe('a version that is not the intended one', () => {
  for (const [name, [files, code]] of sampled(Object.entries(WRONG_PLUGINS), 2)) {
    it(`is refused when it ${name}`, async () => {
      await stage.publish(VERSION, files, { replace: true })
      await assertRefuses(stage, { code, during: 'extracting' })
    })
  }

  const older: Record<string, ['verifying_signature' | 'extracting', Record<string, string>]> = {
    'according to its header': ['verifying_signature', { 'x-plugin': 'greeter@0.9.0' }],
    'according to its plugin.yaml': ['extracting', {}],
  }
  for (const [name, [during, headers]] of Object.entries(older)) {
    it(`is refused when it is older than the installed one ${name}, whatever the hub lists`, async t => {
      const hub = await serveUntrustedHub(t, { artifact: serveArtifact(pluginZip('0.9.0'), headers) })
      const refusal = { code: 'downgrade_refused', during } as const
      await assertRefuses(stage, refusal, { 'hub-url': hub.url, 'deployments-url': stage.hub.url })
    })
  }

  it('is refused when it is the installed version with different bytes', async () => {
    await stage.publish('1.0.0', pluginFiles('1.0.0', { more: 'bytes' }), { replace: true })
    await assertRefuses(stage, { code: 'version_reused', during: 'extracting' }, { version: '1.0.0' })
  })
})

describe('a host that cannot take the new version', () => {
  it('may be locked by another deployment, whose run the error names', async t => {
    const path = join(stage.root, '.hub-deploy/lock')
    const runUrl = 'https://code-host.example/runs/7'
    const lock = await acquireLock({ path, timeoutMs: 0, runUrl, log: () => {} })
    t.after(() => lock.release())
    const result = await stage.deploy({ 'lock-timeout-seconds': '0' })
    const { error, states } = readLocalReport(result)
    assert.deepEqual(
      [result.exitCode, error?.code, states.map(({ state }) => state).join(' ')],
      [1, 'locked', 'pending'],
    )
    assert.ok(commandsIn(result.log, 'error')[0]?.includes(runUrl))
    assert.equal(result.outputs['reported'], 'true')
    lock.release()
  })

  it('may have a kept path whose parent is no longer a directory', async () => {
    writeFileSync(join(stage.root, 'plugins/greeter/kept'), 'the host has a file here')
    mkdirSync(join(stage.root, 'plugins/greeter/settings'))
    writeFileSync(join(stage.root, 'plugins/greeter/settings/local'), 'mine')
    await stage.publish(VERSION, pluginFiles(VERSION, { settings: 'a file' }), { replace: true })
    const refusal = { code: 'step_failed', during: 'installing', step: 'files' } as const
    await assertRefuses(stage, refusal, { 'keep-paths': 'settings/local' })
  })

  const blocked: Record<string, { block: (root: string) => void; code: string }> = {
    'plugins/ is a file': { block: root => writeFileSync(join(root, 'plugins'), ''), code: 'host_not_writable' },
    '.hub-deploy/ is a symlink': {
      block(root) {
        mkdirSync(join(root, 'elsewhere'), { mode: 0o700 })
        symlinkSync('elsewhere', join(root, '.hub-deploy'))
      },
      code: 'unsafe_host',
    },
  }
  for (const [name, { block, code }] of Object.entries(blocked)) {
    it(`may be unusable: ${name}`, async () => {
      const root = join(stage.workspace.path, 'other-host')
      mkdirSync(root)
      block(root)
      const result = await stage.deploy({ 'project-root': root })
      assert.deepEqual(
        [result.exitCode, result.outputs['error-code'], result.outputs['outcome'], result.outputs['changed']],
        [1, code, 'failed', 'false'],
      )
      assert.equal(commandsIn(result.log, 'error').length, 1)
      rmSync(root, { recursive: true })
    })
  }

  const unusable = { 'a file': 'install.yaml', 'below a missing folder': 'no/such/folder' }
  for (const [name, path] of sampled(Object.entries(unusable), 1)) {
    it(`may not be writable: the project root is ${name}`, async () => {
      const result = await stage.deploy({ 'project-root': join(stage.workspace.path, path) })
      assert.deepEqual([result.exitCode, result.outputs['error-code']], [1, 'host_not_writable'])
      assert.match(result.outputs['report-path'] ?? '', /\/hub-deploy-report-[^/]+\.json$/)
      assert.ok(existsSync(result.outputs['report-path'] ?? ''))
    })
  }
})
