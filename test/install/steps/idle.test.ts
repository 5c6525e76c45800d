import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { describe, it, type TestContext } from 'node:test'
import { parsePlan } from '../../../src/core/plan/plan.ts'
import type { Settings } from '../../../src/core/plan/settings.ts'
import type { PlanStep } from '../../../src/core/plan/step.ts'
import { makeOpenDirectorySync } from '../../../src/install/files/durable.ts'
import { settingsPath } from '../../../src/install/host/layout.ts'
import type { InstallOrder, IntactPart, NewPart, Part } from '../../../src/install/steps/context.ts'
import { findIdleSteps, noticeNotRestarted, noticeSettings } from '../../../src/install/steps/idle.ts'
import { writeTree } from '../../folders.ts'
import { contextOf, deploymentOf, partOf, previousOf } from '../prepared-deployment.ts'
import { collectLog, prepareTemporaryHost, rowOf } from '../prepared-host.ts'

const BASE = { dependsOn: [], snapshot: false, file: 'install.yaml', line: 1, column: 1 }
const step = (id: string, more: object): PlanStep => ({ ...BASE, id, ...more }) as unknown as PlanStep
const STEPS = [
  step('stop-a', { action: 'stop', plugin: 'a' }),
  step('a', { action: 'install_plugin', plugin: 'a' }),
  step('b', { action: 'install_plugin', plugin: 'b' }),
  step('env-b', { action: 'write_env', plugin: 'b', from: 'plugins/b/.env.template' }),
  step('db-b', { action: 'provision', plugin: 'b' }),
  step('up-a', { action: 'restart', plugin: 'a' }),
  step('on-b', { action: 'start', plugin: 'b' }),
  step('all', { action: 'restart' }),
  step('ok', { action: 'healthcheck', timeoutSeconds: 1, retries: 0 }),
  step('tell', { action: 'notify', event: 'done' }),
  step('other', { action: 'provision', plugin: 'not-installed' }),
]

interface Scene {
  /** Ids of the parts that are intact. */
  intact: readonly string[]
  order?: Partial<InstallOrder>
  hasSettings?: boolean
  redeploy?: boolean
}

async function idle(t: TestContext, { intact, order, hasSettings = true, redeploy = false }: Scene): Promise<string> {
  const layout = await prepareTemporaryHost(t)
  makeOpenDirectorySync(`${layout.root}/plugins`)
  if (hasSettings) writeFileSync(settingsPath(layout, { shelf: 'plugins', id: 'b', directory: 'plugins' }), '')
  const parts = ['a', 'b'].map((id): Part => {
    const { staged, tree, ...facts } = partOf(layout, {
      id,
      previous: previousOf(),
    })
    const kept: IntactPart = { ...facts, intact: { tree_digest: null } }
    return intact.includes(id) ? kept : { ...facts, staged, tree }
  })
  const deployment = deploymentOf(layout, { request: { redeploy } })
  const { order: whole } = await contextOf(t, deployment, { steps: STEPS, parts, ...order })
  return [...findIdleSteps(deployment, whole)].join(' ')
}

describe('the steps that act on the host', () => {
  const removal = { shelf: 'plugins' as const, id: 'c', directory: 'plugins', installed: rowOf({ id: 'c' }) }
  const cases: Record<string, [Scene, string]> = {
    'are idle when every part is intact': [{ intact: ['a', 'b'] }, 'stop-a db-b up-a on-b all tell other'],
    'of a part that changes are not idle, nor are those for all parts or for no installed part': [
      { intact: ['b'] },
      'db-b on-b',
    ],
    'of a part whose settings are missing are not idle, even before the settings are created': [
      { intact: ['a', 'b'], hasSettings: false },
      'stop-a up-a',
    ],
    'of an intact part are not idle if one of them depends on a step that changes another part': [
      {
        intact: ['a'],
        order: {
          steps: [
            ...STEPS,
            step('ok-b', { action: 'healthcheck', plugin: 'b', dependsOn: ['b'] }),
            step('late-a', { action: 'start', plugin: 'a', dependsOn: ['ok-b'] }),
          ],
        },
      },
      '',
    ],
    'for all parts are not idle when one is removed': [
      { intact: ['a', 'b'], order: { removals: [removal] } },
      'stop-a db-b up-a on-b',
    ],
    'do not count as idle if the host config leaves them out': [
      { intact: ['a', 'b'], order: { skipped: new Set(['stop-a', 'up-a', 'on-b', 'all']) } },
      'db-b tell other',
    ],
    'are never idle with redeploy': [{ intact: ['a', 'b'], redeploy: true }, ''],
  }
  for (const [name, [scene, expected]] of Object.entries(cases)) {
    it(name, async t => {
      assert.equal(await idle(t, scene), expected)
    })
  }
})

const INSTALL = '{ id: a, action: install_plugin, plugin: x }'
const WRITE = '{ id: b, action: write_env, plugin: x, from: plugins/x/.env.template }'

interface NoticesScene {
  required?: string[]
  /** The content of the host's `plugins/x.env`; null if there is no such file. */
  settings?: string | null
  steps?: string[]
  /** The input `settings`. */
  given?: Settings
}

async function noticesOf(t: TestContext, scene: NoticesScene): Promise<string[]> {
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
  const rows: [string, NoticesScene, string[]][] = [
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
    assert.ok(line.startsWith('notice ') && !line.includes('\u001b'), line)
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

describe('noticeNotRestarted', () => {
  const ephemeral = { required: [], optional: [], isEphemeral: true }
  const noticesFor = async (
    t: TestContext,
    part: Partial<Part>,
    order: Partial<InstallOrder> = {},
  ): Promise<readonly string[]> => {
    const layout = await prepareTemporaryHost(t)
    const log = collectLog()
    const parts = [partOf(layout, { id: 'a', environment: ephemeral, ...part } as Partial<NewPart>) as Part]
    noticeNotRestarted(await contextOf(t, deploymentOf(layout, { tools: { log } }), { parts, ...order }))
    return log.lines
  }
  const restart = step('up', { action: 'restart', plugin: 'a' })

  it('asks for a restart of the host framework after a plugin that it runs itself was replaced', async t => {
    for (const order of [
      {},
      { steps: [restart], skipped: new Set(['up']) },
      { steps: [{ ...restart, plugin: 'b' }] },
    ]) {
      const [line = '', ...more] = await noticesFor(t, {}, order as Partial<InstallOrder>)
      assert.match(line, /^notice No step restarted plugins\/a, .* restart the host framework, unless /)
      assert.equal(more.length, 0)
    }
  })

  it('is silent about a plugin that was restarted, that stayed, or that has a process of its own', async t => {
    const everything = step('all', { action: 'start' })
    for (const steps of [[restart], [everything]]) assert.deepEqual(await noticesFor(t, {}, { steps }), [])
    assert.deepEqual(await noticesFor(t, { intact: { tree_digest: null } } as Partial<Part>), [])
    assert.deepEqual(await noticesFor(t, { environment: { required: [], optional: [] } }), [])
  })
})
