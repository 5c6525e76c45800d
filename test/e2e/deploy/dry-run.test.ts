import assert from 'node:assert/strict'
import { lstatSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { sampled, whyLeftToCi } from '../../extent.ts'
import { acceptedReports, commandsIn } from '../harness/evidence.ts'
import { assertNoSecret } from '../harness/refusal.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, type Stage, writeFiles } from '../harness/stage.ts'
import { answerJson, serveUntrustedHub } from '../harness/untrusted-hub.ts'

const ONLY_IN_CI = whyLeftToCi()

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  await stage.publish('1.0.0', pluginFiles('1.0.0', { 'src/old.py': 'old', 'src/same.py': 'same' }))
})
afterEach(() => stage.close())

/** Every path below the project root, with its inode, mode, size and times. */
function listUntouched(): string[] {
  const paths = ['.', ...readdirSync(stage.root, { recursive: true, encoding: 'utf8' })].sort()
  return paths.map(path => {
    const { ino, mode, size, mtimeMs, ctimeMs } = lstatSync(join(stage.root, path))
    return [path, ino, mode, size, mtimeMs, ctimeMs].join(' ')
  })
}

/** Runs a dry run, which must not touch the host, report to the hub, or leave a file behind. */
async function dryRun(inputs: Record<string, string> = {}): Promise<ActionResult> {
  const [host, reports] = [listUntouched(), acceptedReports(stage)]
  const result = await stage.deploy({ 'dry-run': 'true', ...inputs })
  assert.deepEqual(listUntouched(), host)
  assert.deepEqual(acceptedReports(stage), reports)
  assert.deepEqual(
    readdirSync(stage.workspace.temp).filter(name => !name.startsWith('commands-')),
    [],
  )
  assert.deepEqual(
    [result.outputs['changed'], result.outputs['reported'], result.outputs['report-path']],
    ['false', 'false', ''],
  )
  assertNoSecret(stage, result)
  return result
}

describe('a dry run', () => {
  it('lists what a first deployment would do', async () => {
    const { exitCode, outputs, log, summary } = await dryRun()
    assert.deepEqual(
      [exitCode, outputs['outcome'], outputs['version'], outputs['previous-version']],
      [0, 'success', '1.0.0', ''],
      log,
    )
    assert.match(log, /prepare[\s\S]*files \(install_plugin\)/)
    for (const path of ['plugin.yaml', 'src/main.py', 'src/old.py'])
      assert.match(log, new RegExp(`added +plugins/greeter/${path}`))
    assert.match(summary, /^### 🔎 Dry run: first install of greeter 1\.0\.0 on host-1 would change 4 files\n/)
    assert.match(summary, /^\| added \| <code>plugins\/greeter\/src\/old\.py<\/code> \| 3 bytes \|$/m)
  })

  it('lists what an update would add, remove and change, with sizes', async () => {
    assert.equal((await stage.deploy()).exitCode, 0)
    writeFiles(join(stage.root, 'plugins/greeter'), { 'data/rows': 'mine' })
    await stage.publish('1.10.0', pluginFiles('1.10.0', { 'src/new.py': 'newer', 'src/same.py': 'same' }))
    const { exitCode, outputs, log } = await dryRun()
    assert.deepEqual([exitCode, outputs['version'], outputs['previous-version']], [0, '1.10.0', '1.0.0'])
    assert.match(log, /added +plugins\/greeter\/src\/new\.py.*5 bytes/)
    assert.match(log, /removed +plugins\/greeter\/src\/old\.py.*3 bytes/)
    assert.match(log, /changed +plugins\/greeter\/src\/main\.py \(26 → 27 bytes\)/)
    assert.doesNotMatch(log, /same\.py|data/)
  })

  it('lists the files that have changed on the host since the last deployment', async () => {
    assert.equal((await stage.deploy()).exitCode, 0)
    writeFiles(join(stage.root, 'plugins/greeter'), { 'src/old.py': 'by hand' })
    const { log, summary } = await dryRun()
    assert.match(log, /changed +plugins\/greeter\/src\/old\.py/)
    assert.match(summary, /would change 1 file\n/)
    assert.match(
      summary,
      /<code>plugins\/greeter\/src\/old\.py<\/code> \(changed\)\. A real run would keep, in a snapshot, the files that it replaces/,
    )
    const repair = await stage.deploy()
    assert.match(repair.summary, /install&#95;plugin \| 1 edited file restored \|/)
  })

  it('counts the settings that a real run would write', async () => {
    await stage.publish('1.1.0', pluginFiles('1.1.0', { '.env.template': 'A=1\n' }))
    assert.equal((await stage.deploy()).exitCode, 0)
    stage.writePlan(
      `${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/.env.template}\n`,
    )
    const { summary } = await dryRun()
    assert.match(summary, /^### 🔎 Dry run: greeter 1\.1\.0 on host-1 would change 1 file\n/)
    assert.match(summary, /^\| added \| <code>plugins\/greeter\.env<\/code> \| from its template \|$/m)
    const written = await stage.deploy()
    assert.match(written.summary, /^### ✅ greeter 1\.1\.0 was already on host-1; its settings were written\n/)
    assert.match((await dryRun()).summary, /would change no file\n/)
  })

  it('counts the settings that the host framework injects, even if nothing else would change', {
    skip: ONLY_IN_CI,
  }, async () => {
    const injecting = 'name: greeter\nversion: "1.1.0"\nenvconfiguration: {inject: true}\n'
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'plugin.yaml': injecting, 'etc/env': 'A=1\n' }))
    stage.writePlan(`${PLUGIN_PLAN}  - {id: env, action: write_env, plugin: greeter, from: plugins/greeter/etc/env}\n`)
    const injected = /^added +plugins\/greeter\/\.env \(from its template\)$/m
    const first = await dryRun()
    assert.match(first.log, injected)
    assert.equal((await stage.deploy()).exitCode, 0)
    assert.match((await dryRun()).summary, /would change no file\n/)
    rmSync(join(stage.root, 'plugins/greeter/.env'))
    const { log, summary } = await dryRun()
    assert.match(summary, /^### 🔎 Dry run: greeter 1\.1\.0 on host-1 would change 1 file\n/)
    assert.match(log, injected)
    assert.equal((await stage.deploy()).outputs['changed'], 'true')
    assert.match((await dryRun()).summary, /would change no file\n/)
  })

  it('lists the files that the artifact ships below a kept path, unless the host has its own', async () => {
    await stage.publish('1.1.0', pluginFiles('1.1.0', { 'data/defaults': 'shipped' }))
    const { log } = await dryRun()
    assert.match(log, /^added +plugins\/greeter\/data\/defaults \(7 bytes\)$/m)
    assert.equal((await stage.deploy()).exitCode, 0)
    await stage.publish('1.2.0', pluginFiles('1.2.0', { 'data/defaults': 'shipped anew', 'data/more': '' }))
    assert.doesNotMatch((await dryRun()).log, /greeter\/data/)
  })

  it('announces that it would replace a directory that this action has not installed', async () => {
    writeFiles(join(stage.root, 'plugins/greeter'), { 'by-hand.py': 'mine' })
    const notice = /This action has no record of plugins\/greeter: a deployment replaces it and keeps it as a snapshot/
    assert.match((await dryRun()).log, notice)
    const { log, summary } = await stage.deploy()
    assert.match(log, notice)
    assert.match(
      summary,
      /^### ✅ First install of .* on host-1; it replaced files that this action had not installed\n/,
    )
  })

  it('does not need an existing project root', async () => {
    rmSync(stage.root, { recursive: true })
    const result = await stage.deploy({ 'dry-run': 'true' })
    assert.equal(result.exitCode, 0, result.log)
    assert.throws(() => lstatSync(stage.root), { code: 'ENOENT' })
  })

  const failing: Record<string, [Record<string, string>, string]> = {
    'an input is malformed': [{ 'keep-snapshots': 'x' }, 'invalid_input'],
    'an input is missing': [{ slug: '' }, 'missing_input'],
    'the signature does not match': [{ 'signing-secret': 'secret of somebody' }, 'signature_mismatch'],
    'the version does not exist': [{ version: '9.9.9' }, 'not_found'],
    'the archive is too large': [{ 'max-entries': '1' }, 'archive_too_large'],
  }
  for (const [name, [inputs, code]] of sampled(Object.entries(failing), 2)) {
    it(`fails when ${name}`, async () => {
      const { exitCode, outputs, log } = await dryRun(inputs)
      assert.deepEqual([exitCode, outputs['outcome'], outputs['error-code']], [1, 'failed', code])
      assert.equal(outputs['state'], code?.endsWith('_input') ? 'pending' : 'failed')
      assert.equal(commandsIn(log, 'error').length, 1)
    })
  }

  it('hides a secret that the hub repeats, whatever its characters', { skip: ONLY_IN_CI }, async t => {
    const key = 'k_e*y_with_marks'
    const hub = await serveUntrustedHub(t, { detail: answerJson(500, { error: `no ${key} for you` }) })
    const { outputs, summary, log } = await dryRun({ 'hub-url': hub.url, 'api-key': key })
    assert.equal(outputs['error-code'], 'artifact_unavailable')
    assert.doesNotMatch(summary, /e&#42;y|k&#95;e/)
    assert.match(summary, /no &#42;&#42;&#42; for you/)
    assert.ok(!log.replace(/^::add-mask::.*$/gm, '').includes(key))
  })

  it('fails on an invalid plan and annotates its lines', async () => {
    stage.writePlan(`${PLUGIN_PLAN}  - {id: x, action: run}\n`)
    const { outputs, log } = await dryRun()
    assert.equal(outputs['error-code'], 'invalid_plan')
    assert.match(commandsIn(log, 'error')[0] ?? '', /file=install\.yaml,line=7/)
  })
})
