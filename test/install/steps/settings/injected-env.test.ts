import assert from 'node:assert/strict'
import { existsSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../../src/core/errors.ts'
import { warnOfMissingEnv } from '../../../../src/install/steps/settings/settings-notices.ts'
import { writeEnv } from '../../../../src/install/steps/settings/write-env.ts'
import { collectLog } from '../../collected-log.ts'
import { contextOf, deploymentOf, partOf } from '../../prepared-deployment.ts'
import { prepareTemporaryHost } from '../../prepared-host.ts'
import { writeTree } from '../../temporary-directory.ts'

const TEMPLATE = 'plugins/x/.env.template'
const YAML = 'name: x\nenvconfiguration: {inject: true}\n'

/** A host with an installed plugin whose settings are injected, and with these other files. */
async function openScene(t: TestContext, files: Record<string, string> = {}, keepPaths: readonly string[] = ['.env']) {
  const layout = await prepareTemporaryHost(t)
  writeTree(layout.root, { [TEMPLATE]: 'A=1\nB=\n', 'plugins/x/plugin.yaml': YAML, ...files })
  const log = collectLog()
  const settings = new Map([['B', 'of this host']])
  const deployment = deploymentOf(layout, { tools: { log }, request: { keepPaths, settings } })
  const part = { ...partOf(layout), environment: { required: ['B'], optional: [], injectsEnv: true } }
  const context = await contextOf(t, deployment)
  const path = join(layout.root, 'plugins/x/.env')
  return { layout, log, part, context, path, write: async () => (await writeEnv(context, part, TEMPLATE)).did }
}

function stepFailed(error: unknown): boolean {
  return error instanceof DeploymentError && error.code === 'step_failed' && error.message.includes('plugins/x/.env')
}

describe('the settings that a host framework injects', () => {
  it('are the same as those next to the plugin, 0600, and are removed with them on a rollback', async t => {
    const { context, path, write } = await openScene(t)
    assert.equal(await write(), 'x.env and plugins/x/.env written')
    assert.equal(readFileSync(path, 'utf8'), "A=1\nB='of this host'\n")
    assert.deepEqual(
      [statSync(path).mode & 0o777, readFileSync(`${join(path, '..')}.env`, 'utf8')],
      [0o600, "A=1\nB='of this host'\n"],
    )
    await context.transaction.rollback()
    assert.deepEqual([existsSync(path), existsSync(`${join(path, '..')}.env`)], [false, false])
  })

  it('are a copy of existing settings, including all text that the operator has added', async t => {
    const { path, write } = await openScene(t, { 'plugins/x.env': '# mine\nB=2\n' })
    assert.equal(await write(), 'x.env already exists and was left unchanged; plugins/x/.env written')
    assert.equal(readFileSync(path, 'utf8'), '# mine\nB=2\n')
    assert.equal(await write(), 'x.env already exists and was left unchanged')
  })

  it("are never changed if they are the operator's own, nor removed on a rollback", async t => {
    const { context, path, write } = await openScene(t, { 'plugins/x/.env': 'B=mine\n' })
    assert.equal(await write(), 'x.env written')
    await context.transaction.rollback()
    assert.equal(readFileSync(path, 'utf8'), 'B=mine\n')
  })

  it('cause a warning with the names of their keys if their values differ from those next to the plugin', async t => {
    const { log, write } = await openScene(t, {
      'plugins/x/.env': 'B=secret-1\nA=1\n',
      'plugins/x.env': 'A=1\nB=secret-2\n',
    })
    assert.equal(await write(), 'x.env already exists and was left unchanged')
    const warnings = log.lines.filter(line => line.startsWith('warning'))
    assert.equal(warnings.length, 1)
    assert.match(warnings[0] ?? '', /plugins\/x\/\.env sets B to different values than .*plugins\/x\.env/)
    assert.doesNotMatch(warnings.join(), /secret/)
  })

  it('fail the step if they exist and lack a required key, or cannot be read', async t => {
    const { write } = await openScene(t, { 'plugins/x.env': 'B=2\n', 'plugins/x/.env': 'A=1\n' })
    await assert.rejects(write(), stepFailed)
    const other = await openScene(t, { 'plugins/x.env': 'B=2\n' })
    symlinkSync('nowhere', other.path)
    await assert.rejects(other.write(), stepFailed)
  })

  it('are not written if no keep-path would carry them over to the next version', async t => {
    const { log, path, write } = await openScene(t, {}, ['data'])
    assert.equal(await write(), 'x.env written')
    assert.ok(!existsSync(path))
    assert.match(log.lines.join('\n'), /warning .*\.env, .* keep-paths does not name \.env/)
  })

  const entryPoints = { 'src/main.py': true, 'main.py': false }
  for (const [entryPoint, isWritten] of Object.entries(entryPoints)) {
    it(`are ${isWritten ? '' : 'not '}written into a signed plugin with the entry point ${entryPoint}`, async t => {
      const yaml = `${YAML}execution_mode: trusted\nentry_point: ${entryPoint}\n`
      const { log, path, write } = await openScene(t, { 'plugins/x/plugin.yaml': yaml, 'plugins/x/plugin.sig': '{}' })
      await write()
      assert.equal(existsSync(path), isWritten)
      assert.equal(/plugin\.sig may cover that file/.test(log.lines.join('\n')), !isWritten)
    })
  }

  it('cause a warning if they are missing and no step writes them', async t => {
    const { context, log, part, path } = await openScene(t)
    const order = { ...context.order, parts: [part], steps: [] }
    warnOfMissingEnv({ deployment: context.deployment, order })
    assert.match(log.lines.join('\n'), /^warning plugins\/x gets its settings from .*plugins\/x\/\.env only/)
    writeFileSync(path, '')
    warnOfMissingEnv({ deployment: context.deployment, order })
    assert.equal(log.lines.length, 1)
  })
})
