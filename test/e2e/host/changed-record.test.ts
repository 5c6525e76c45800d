import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import type { InstalledRow } from '../../../src/install/host/rows.ts'
import { sampled } from '../../extent.ts'
import { readLocalReport } from '../harness/evidence.ts'
import { runRecover } from '../harness/processes.ts'
import { openStage, PLUGIN_PLAN, pluginFiles, preparedOnce, SERVICE_PLAN, type Stage } from '../harness/stage.ts'

const CLOCK = { kind: 'service', slug: 'clock' } as const
const PLAN = `${PLUGIN_PLAN.replace('[prepare]', '[early]')}
  - {id: early, action: notify, event: early, depends_on: [prepare]}
  - {id: late, action: provision, plugin: greeter, depends_on: [files]}
`

const UNHEALTHY_PLAN = `${PLUGIN_PLAN}
  - {id: ok, action: healthcheck, plugin: greeter, timeout: 1, depends_on: [files]}
`

/** The snapshot that the update makes of the old version. */
const OLD = '.hub-deploy/snapshots/plugins/greeter/2-1.1.0'
/**
 * Shell: the damage that another process does to `installed.json`, which is `$0`; `$1` is an earlier copy of that file.
 */
const DAMAGES = {
  'is no longer a record': `echo '{' > "$0"`,
  'is an earlier one': `cp "$1" "$0"`,
  'lists the old version as one to remove': `sed -i '1s|{|{"discard":["${OLD}"],|' "$0"`,
  'was removed': `rm "$0"`,
}
const MOMENTS = ['early', 'late'] as const
const ENDS = { success: 'exit 0', rolled_back: 'exit 1', interrupted: 'kill -9 $PPID; sleep 1' }

const ROWS = Object.keys(DAMAGES).flatMap(damage =>
  MOMENTS.flatMap(moment => Object.keys(ENDS).map(end => ({ damage, moment, end }) as Row)),
)
interface Row {
  readonly damage: keyof typeof DAMAGES
  readonly moment: (typeof MOMENTS)[number]
  readonly end: keyof typeof ENDS
}

describe('a deployment while another process changes installed.json', () => {
  for (const row of sampled(ROWS, 3)) {
    const { damage, moment, end } = row
    it(`ends as ${end}, and loses no part, when the record ${damage} (${moment})`, async t => {
      const host = await openHost(t)
      const before = readFileSync(host.record, 'utf8')
      const { log, outputs } = await host.update(row)
      assert.equal(outputs['outcome'], end, log)
      if (end === 'interrupted') {
        const { status, stdout, stderr } = runRecover(['--project-root', host.root])
        assert.deepEqual([status, /rolled back to 1\.1\.0/.test(stdout)], [0, true], stdout + stderr)
      } else assert.equal(outputs['running-version'], end === 'success' ? '2.0.0' : '1.1.0')
      if (end !== 'success') assert.equal(readFileSync(host.record, 'utf8'), before)
      assert.deepEqual(host.installed(), ['clock 1.0.0 0', end === 'success' ? 'greeter 2.0.0 2' : 'greeter 1.1.0 1'])
      const aside = join(host.root, '.hub-deploy/snapshots/set-aside')
      assert.equal(existsSync(aside) && readdirSync(aside).length === 1, damage !== 'was removed')
    })
  }

  it('compares the old version with the record that it found', async t => {
    const host = await openHost(t)
    const result = await host.update({ damage: 'is an earlier one', moment: 'late', end: 'rolled_back' })
    assert.deepEqual(readLocalReport(result).rollback, { restored: true, problems: [], verified: true, healthy: null })
  })
})

describe('a rollback whose last check changes installed.json', () => {
  it('rewrites the record right before it removes the journal', async t => {
    const host = await openHost(t)
    const before = readFileSync(host.record, 'utf8')
    const { log, outputs } = await host.updateUnhealthy(DAMAGES['was removed'])
    assert.deepEqual([outputs['outcome'], outputs['running-version']], ['rolled_back', '1.1.0'], log)
    assert.equal(readFileSync(host.record, 'utf8'), before)
    assert.match(log, /Another process removed \S+installed\.json after a deployment had begun/)
  })

  it('says so if it cannot write the record, and leaves that to the next run', async t => {
    const host = await openHost(t)
    const before = readFileSync(host.record, 'utf8')
    const aside = join(host.root, '.hub-deploy/snapshots/set-aside')
    const { log, outputs } = await host.updateUnhealthy(`echo '{' > "$0"; echo > ${aside}`)
    assert.equal(outputs['outcome'], 'rolled_back', log)
    assert.match(log, /^::warning::.*installed\.json.* The next run writes that file\.$/m)
    rmSync(aside)
    const { status, stdout, stderr } = runRecover(['--project-root', host.root])
    assert.equal(status, 0, stdout + stderr)
    assert.equal(readFileSync(host.record, 'utf8'), before)
  })
})

interface ChangedHost {
  readonly root: string
  readonly record: string
  /** The id, version and number of snapshots of each part. */
  installed(): string[]
  update(row: Row): Promise<ActionResult>
  /**
   * Installs a version that is not healthy. The run then checks the restored old version, and that check runs this
   * command.
   */
  updateUnhealthy(command: string): Promise<ActionResult>
}

/** A host with the service clock, and with greeter 1.1.0, which has replaced 1.0.0. */
async function openHost(t: TestContext): Promise<ChangedHost> {
  const stage = await openStage(await preparedOnce('two parts', deployAll))
  t.after(() => stage.close())
  const { root, workspace } = stage
  const record = join(root, '.hub-deploy/installed.json')
  const deploy = async (plan: string, config: object): Promise<ActionResult> => {
    writeFileSync(join(workspace.path, 'host.yaml'), JSON.stringify({ version: 1, ...config }))
    stage.writePlan(plan)
    return await stage.deploy({ 'host-config': 'host.yaml' })
  }
  return {
    root,
    record,
    installed() {
      const rows: InstalledRow[] = JSON.parse(readFileSync(record, 'utf8')).installed
      return rows.map(({ id, version, snapshots }) => `${id} ${version} ${snapshots.length}`)
    },
    async update({ damage, moment, end }) {
      const command = (at: string, then: string) => {
        const script = `${at === moment ? DAMAGES[damage] : ''}\n${then}`
        return { command: ['sh', '-c', script, record, join(root, 'earlier.json')] }
      }
      return await deploy(PLAN, {
        notify: { early: command('early', '') },
        provision: { greeter: command('late', ENDS[end]) },
      })
    },
    async updateUnhealthy(command) {
      const script = `if grep -q 2.0.0 ${root}/plugins/greeter/plugin.yaml; then exit 1; fi\n${command}`
      const plugins = { greeter: { healthcheck: { command: ['sh', '-c', script, record] } } }
      return await deploy(UNHEALTHY_PLAN, { plugins })
    },
  }
}

async function deployAll(): Promise<Stage> {
  const stage = await openStage()
  const deploy = async (inputs: Record<string, string> = {}): Promise<void> => {
    const { exitCode, log } = await stage.deploy(inputs)
    if (exitCode !== 0) throw new Error(log)
  }
  await stage.publish('1.0.0', pluginFiles('1.0.0'))
  await deploy()
  writeFileSync(join(stage.root, 'earlier.json'), readFileSync(join(stage.root, '.hub-deploy/installed.json')))
  await stage.publish('1.1.0', pluginFiles('1.1.0'))
  await deploy()
  await stage.publish('1.0.0', { 'clock.py': 'tick' }, CLOCK)
  stage.writePlan(SERVICE_PLAN)
  await deploy(CLOCK)
  await stage.publish('2.0.0', pluginFiles('2.0.0'))
  return stage
}
