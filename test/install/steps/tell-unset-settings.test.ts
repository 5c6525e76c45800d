import assert from 'node:assert/strict'
import { mkdirSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { parsePlan } from '../../../src/core/plan/plan.ts'
import { tellUnsetSettings } from '../../../src/install/steps/tell-unset-settings.ts'
import { collectLog } from '../collected-log.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { writeTree } from '../temporary-directory.ts'

const INSTALL = '{ id: a, action: install_plugin, plugin: x }'
const WRITE = '{ id: b, action: write_env, plugin: x, from: plugins/x/.env.template }'

interface Scene {
  required?: string[]
  /** The host's `plugins/x.env`; null where there is none. */
  settings?: string | null
  steps?: string[]
}

async function tell(t: TestContext, scene: Scene): Promise<string[]> {
  const { required = ['A', 'B'], settings = null, steps = [INSTALL] } = scene
  const layout = await prepareTemporaryHost(t)
  if (settings !== null) writeTree(layout.root, { 'plugins/x.env': settings })
  const plan = parsePlan(
    `format_version: "1"\nproject_id: x\nversion: 1.0.0\nsteps: [${steps.join(', ')}]\n`,
    'install.yaml',
  )
  const log = collectLog()
  const things = [{ shelf: 'plugins' as const, id: 'x', environment: { required, optional: ['O'] } }]
  tellUnsetSettings({ layout, log, things, steps: plan.steps })
  return log.lines
}

describe('tellUnsetSettings', () => {
  const rows: [string, Scene, string[]][] = [
    ['all where there are no settings', {}, ['A', 'B']],
    ['what they lack', { settings: 'A=hunter22\n' }, ['B']],
    ['what they leave empty', { settings: 'A=\nB=hunter22\n' }, ['A']],
    ['nothing that they have', { settings: 'export A=hunter22\nB="x"\n' }, []],
    ['nothing where nothing is required', { required: [] }, []],
    ['nothing of what the plan writes', { steps: [INSTALL, WRITE] }, []],
  ]
  for (const [name, scene, unset] of rows) {
    it(`names ${name}`, async t => {
      const lines = await tell(t, scene)
      assert.equal(lines.length, unset.length > 0 ? 1 : 0)
      if (unset.length > 0) assert.ok(lines[0]?.startsWith(`notice plugins/x requires ${unset.join(', ')}, `), lines[0])
      assert.doesNotMatch(lines.join(), /hunter22/)
    })
  }

  it('cleans a name that no variable can have', async t => {
    const [line = ''] = await tell(t, { required: ['A\u001b[31m::error::'] })
    assert.ok(line.startsWith('notice ') && !line.includes('\u001b') && !line.includes('::'), line)
  })

  it('says nothing of settings that are no file', async t => {
    const layout = await prepareTemporaryHost(t)
    mkdirSync(`${layout.root}/plugins/x.env`, { recursive: true })
    const log = collectLog()
    const things = [{ shelf: 'plugins' as const, id: 'x', environment: { required: ['A'], optional: [] } }]
    tellUnsetSettings({ layout, log, things, steps: [] })
    assert.deepEqual(log.lines, [])
  })
})
