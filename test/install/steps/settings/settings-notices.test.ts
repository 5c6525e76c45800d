import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { parsePlan } from '../../../../src/core/plan/plan.ts'
import type { Settings } from '../../../../src/core/plan/settings.ts'
import { noticeSettings } from '../../../../src/install/steps/settings/settings-notices.ts'
import { collectLog } from '../../collected-log.ts'
import { contextOf, deploymentOf, partOf } from '../../prepared-deployment.ts'
import { prepareTemporaryHost } from '../../prepared-host.ts'
import { writeTree } from '../../temporary-directory.ts'

const INSTALL = '{ id: a, action: install_plugin, plugin: x }'
const WRITE = '{ id: b, action: write_env, plugin: x, from: plugins/x/.env.template }'

interface Scene {
  required?: string[]
  /** The content of the host's `plugins/x.env`; null if there is no such file. */
  settings?: string | null
  steps?: string[]
  /** The input `settings`. */
  given?: Settings
}

async function noticesOf(t: TestContext, scene: Scene): Promise<string[]> {
  const { required = ['A', 'B'], settings = null, steps = [INSTALL], given = new Map() } = scene
  const layout = await prepareTemporaryHost(t)
  if (settings !== null) writeTree(layout.root, { 'plugins/x.env': settings })
  const plan = parsePlan(
    `format_version: "1"\nproject_id: x\nversion: 1.0.0\nsteps: [${steps.join(', ')}]\n`,
    'install.yaml',
  )
  const parts = [partOf(layout, { environment: { required, optional: ['O'] } })]
  const log = collectLog()
  const deployment = deploymentOf(layout, { tools: { log }, request: { settings: given } })
  const context = await contextOf(t, deployment, { parts, steps: plan.steps })
  noticeSettings(context)
  return log.lines
}

describe('noticeSettings', () => {
  const rows: [string, Scene, string[]][] = [
    ['all required keys when the host has no settings', {}, ['A', 'B']],
    ['the keys that the settings lack', { settings: 'A=hunter22\n' }, ['B']],
    ['the keys that the settings leave empty', { settings: 'A=\nB=hunter22\n' }, ['A']],
    ['no key that the settings contain', { settings: 'export A=hunter22\nB="x"\n' }, []],
    ['no key when none is required', { required: [] }, []],
    ['no key of settings that the plan writes', { steps: [INSTALL, WRITE] }, []],
  ]
  for (const [name, scene, unset] of rows) {
    it(`names ${name}`, async t => {
      const lines = await noticesOf(t, scene)
      assert.equal(lines.length, unset.length > 0 ? 1 : 0)
      if (unset.length > 0)
        assert.ok(lines[0]?.startsWith(`notice plugins/x requires ${unset.join(', ')}, which `), lines[0])
      assert.doesNotMatch(lines.join(), /hunter22/)
    })
  }

  it('names the settings that no step writes, but never their values', async t => {
    const settings = new Map([['TOKEN', 'hunter22']])
    for (const steps of [[INSTALL], [INSTALL, WRITE]]) {
      const lines = await noticesOf(t, { required: [], steps, given: settings })
      assert.equal(lines.length, 2 - steps.length)
      assert.doesNotMatch(lines.join(), /hunter22/)
      for (const line of lines)
        assert.match(line, /^notice The settings given as input contain TOKEN, but the plan has no write_env step/)
    }
  })

  it('cleans a name that is not a valid variable name', async t => {
    const [line = ''] = await noticesOf(t, { required: ['A\u001b[31m::error::'] })
    assert.ok(line.startsWith('notice ') && !line.includes('\u001b') && !line.includes('::'), line)
  })

  it('logs nothing when the settings are not a file', async t => {
    const layout = await prepareTemporaryHost(t)
    mkdirSync(`${layout.root}/plugins/x.env`, { recursive: true })
    const parts = [partOf(layout, { environment: { required: ['A'], optional: [] } })]
    const log = collectLog()
    noticeSettings(await contextOf(t, deploymentOf(layout, { tools: { log } }), { parts }))
    assert.deepEqual(log.lines, [])
  })
})
