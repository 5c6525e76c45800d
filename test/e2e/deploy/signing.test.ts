import assert from 'node:assert/strict'
import { createHmac } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { commandsIn } from '../harness/evidence.ts'
import { assertNoSecret } from '../harness/refusal.ts'
import { openStage, type Stage, writeFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const SECRET = 'secret of the host'

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
})
afterEach(() => stage.close())

async function deploy(version: string, files: Record<string, string>): Promise<ActionResult> {
  await stage.publish(version, files)
  const result = await stage.deploy({ 'plugin-secret-key': SECRET })
  assert.equal(result.exitCode, 0, result.log)
  assertNoSecret(stage, result, [SECRET])
  return result
}

function installed(path: string): string {
  return readFileSync(join(stage.root, 'plugins/greeter', path), 'utf8')
}

describe('a plugin that its host wants signed', () => {
  it('gets the signature that the host framework computes', async () => {
    const description = 'name: greeter\nversion: "1.0.0"\nexecution_mode: Trusted\n'
    await deploy('1.0.0', { 'plugin.yaml': description, 'src/main.py': 'pass\n', 'src/x.md': 'x', 'other.py': 'y' })
    const signed = `${description}src/main.py\0pass\n\0src/x.md\0x\0`
    assert.deepEqual(JSON.parse(installed('plugin.sig')), {
      plugin: 'greeter',
      version: '1.0.0',
      digest: createHmac('sha256', SECRET).update(signed).digest('hex'),
      algo: 'HMAC-SHA256',
    })
  })

  it('causes a warning that names the input when it is not signed', async () => {
    const description = 'name: greeter\nversion: "1.0.0"\nexecution_mode: trusted\n'
    await stage.publish('1.0.0', { 'plugin.yaml': description, 'src/main.py': 'pass\n' })
    for (const changed of ['true', 'false']) {
      const { outputs, log } = await stage.deploy()
      assert.deepEqual([outputs['outcome'], outputs['changed']], ['success', changed], log)
      assert.match(
        commandsIn(log, 'warning').join(),
        /The plugin greeter has execution_mode trusted but is not signed for this host, because plugin-secret-key is not set/,
      )
    }
  })

  it('causes a warning when the host keeps its own files among the signed files', async () => {
    const filesOf = (version: string) => ({
      'plugin.yaml': `name: greeter\nversion: "${version}"\nexecution_mode: trusted\nentry_point: main.py\n`,
      'main.py': 'pass\n',
    })
    const first = await deploy('1.0.0', filesOf('1.0.0'))
    assert.deepEqual(commandsIn(first.log, 'warning'), [])
    writeFiles(join(stage.root, 'plugins/greeter'), { 'data/db': 'mine' })
    const second = await deploy('2.0.0', filesOf('2.0.0'))
    assert.equal(second.outputs['changed'], 'true')
    assert.match(commandsIn(second.log, 'warning').join(), /The plugin\.sig of \S+ covers kept paths \(data\)/)
    assert.equal(installed('data/db'), 'mine')
  })
  it('is reinstalled when a file was added that its signature should cover, because the host would reject the plugin', {
    skip: ONLY_IN_CI,
  }, async () => {
    const files = {
      'plugin.yaml': 'name: greeter\nversion: "1.0.0"\nexecution_mode: trusted\n',
      'src/main.py': 'pass\n',
    }
    const root = join(stage.root, 'plugins/greeter')
    await deploy('1.0.0', files)
    const signature = installed('plugin.sig')
    writeFiles(root, { 'src/extra/planted.py': 'planted', 'notes/mine.txt': 'not signed' })
    const healed = await stage.deploy({ 'plugin-secret-key': SECRET })
    assert.deepEqual([healed.outputs['outcome'], healed.outputs['changed']], ['success', 'true'], healed.log)
    assert.equal(existsSync(join(root, 'src/extra')), false)
    assert.equal(installed('plugin.sig'), signature)
    writeFiles(root, { 'notes/mine.txt': 'not signed' })
    const again = await stage.deploy({ 'plugin-secret-key': SECRET })
    assert.deepEqual([again.outputs['outcome'], again.outputs['changed']], ['success', 'false'], again.log)
  })
})
