import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { describe, it } from 'node:test'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { onceInLog, runRecover, signal } from '../harness/processes.ts'
import { openProjectStage } from '../harness/project-stage.ts'
import { openStage, pluginFiles } from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const MAX_CHARS = 128
/**
 * The limit of a file system for one name. The action's own names are longer than `MAX_CHARS`, because they also
 * contain a time, an id or a number.
 */
const MAX_NAME_BYTES = 255
const ID = 'i'.repeat(MAX_CHARS)
const OTHER = 'e'.repeat(MAX_CHARS)
const versionOf = (major: number) => `${major}.0.0-${'v'.repeat(MAX_CHARS)}`.slice(0, MAX_CHARS)

type Deploy = (version: string, run?: Partial<ActionRun>) => Promise<ActionResult>

/**
 * Runs an install, an update that makes a snapshot, an update that is killed, a recovery, and another update. Asserts
 * that the four runs that end by themselves do not warn, and that no name is too long.
 */
async function liveThrough(root: string, deploy: Deploy): Promise<void> {
  for (const major of [1, 2]) assertQuietSuccess(await deploy(versionOf(major)))
  const killed = await deploy(
    versionOf(3),
    onceInLog('installing', pid => signal(pid, 'SIGKILL')),
  )
  assert.equal(killed.signal, 'SIGKILL', killed.log)
  const { status, stderr } = runRecover(['--project-root', root])
  assert.deepEqual([status, stderr], [0, ''])
  assertQuietSuccess(await deploy(versionOf(3)))
  const names = readdirSync(root, { recursive: true, encoding: 'utf8' }).map(path => path.split('/').at(-1) ?? '')
  assert.ok(names.some(name => name === `1-${versionOf(1)}`))
  assert.deepEqual(
    names.filter(name => Buffer.byteLength(name) > MAX_NAME_BYTES),
    [],
  )
}

function assertQuietSuccess({ outputs, log }: ActionResult): void {
  assert.equal(outputs['outcome'], 'success', log)
  assert.doesNotMatch(log, /::warning/)
}

describe('names of the longest allowed length', () => {
  it('of a plugin, its settings and its versions fit wherever this action uses them', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    stage.writePlan(`format_version: "1"
project_id: ${ID}
version: "1"
steps:
  - {id: files, action: install_plugin, plugin: ${ID}, snapshot: true}
  - {id: env, action: write_env, plugin: ${ID}, from: plugins/${ID}/.env.template, depends_on: [files]}
`)
    for (const version of [1, 2, 3].map(versionOf)) {
      const yaml = `name: ${ID}\nversion: "${version}"\n`
      await stage.publish(
        version,
        { ...pluginFiles(version), 'plugin.yaml': yaml, '.env.template': 'A=1\n' },
        { slug: ID },
      )
    }
    await liveThrough(stage.root, async (version, run) => await stage.deploy({ slug: ID, version }, run))
  })

  it('of a part of a project fit too', { skip: ONLY_IN_CI }, async t => {
    const stage = await openProjectStage()
    t.after(() => stage.close())
    const plan = `format_version: "1"
project_id: shop
version: "1"
steps:
  - {id: files, action: install_plugin, plugin: ${ID}, snapshot: true}
  - {id: more, action: install_extension, extension: ${OTHER}, snapshot: true, depends_on: [files]}
`
    for (const version of [1, 2, 3].map(versionOf)) {
      await stage.publish(version, {
        [`plugins/${ID}/plugin.yaml`]: `name: ${ID}\nversion: "${version}"\n`,
        [`extensions/${OTHER}/run.sh`]: `echo ${version}\n`,
        'deployment/install.yaml': plan,
      })
    }
    await liveThrough(stage.root, async (version, run) => await stage.deploy({ version }, run))
  })
})
