import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, afterEach, beforeEach, describe, it } from 'node:test'
import type { ActionResult } from '../../../local/runner.ts'
import { whyLeftToCi } from '../../extent.ts'
import { makeStandIns } from '../../install/services/stand-ins.ts'
import { openSafeFolder, runRecover, writeSafeHostConfig } from '../harness/processes.ts'
import { openProjectStage } from '../harness/project-stage.ts'
import {
  type HostStage,
  openHostStage,
  openRunningHost,
  PROVISION,
  planWith,
  RESTART,
  unitChanges,
  versionFiles,
  writeFiles,
} from '../harness/stage.ts'

const ONLY_IN_CI = whyLeftToCi()

const KILL = 'kill -9 $PPID; exit 1'

const safe = openSafeFolder()
let stage: HostStage

const hostConfig = (): string => `version: 1
supervisor: systemd
plugins: {greeter: {unit: greeter.service}}
provision: {greeter: {command: [${stage.standIns.bin}/make-db], timeout: 60s}}
`

const isPending = (root: string): boolean =>
  readFileSync(join(root, '.hub-deploy/installed.json'), 'utf8').includes('"service_pending": true')

describe('the service of a plugin that somebody else has installed', () => {
  beforeEach(async () => {
    stage = await openHostStage()
  })
  afterEach(() => stage.close())

  type Recovers = (dead: ActionResult) => unknown
  const recoveries: Record<string, Recovers> = {
    'the post step': dead => stage.deployHere({}, { phase: 'post', state: dead.state }),
    'the next run': () => stage.deployHere({ version: '9.9.9' }),
    'recover.js': () => {
      const command = ['--project-root', stage.root, '--host-config', writeSafeHostConfig(safe, hostConfig())]
      assert.equal(runRecover(command, stage.standIns.path).status, 0)
    },
  }
  for (const [who, recover] of Object.entries(recoveries))
    it(`runs the old version again after a kill, recovered by ${who}`, async () => {
      const main = join(stage.root, 'plugins/greeter/src/main.py')
      writeFiles(join(stage.root, 'plugins/greeter'), versionFiles('1.0.0'))
      const old = readFileSync(main, 'utf8')
      stage.writeHostConfig(hostConfig())
      stage.standIns.setState('greeter.service', 'active')
      await stage.publish('2.0.0', versionFiles('2.0.0'))
      stage.standIns.add('make-db', KILL)
      stage.writePlan(planWith(RESTART, PROVISION))
      const dead = await stage.deployHere()
      assert.deepEqual([dead.signal, stage.standIns.running()], ['SIGKILL', '2.0.0'], dead.log)
      await recover(dead)
      assert.deepEqual([readFileSync(main, 'utf8'), stage.standIns.running()], [old, '1.0.0'])
      assert.ok(!existsSync(join(stage.root, '.hub-deploy/journal.jsonl')))
    })
})

describe('a service that a recovery without a host config leaves to a later run', () => {
  afterEach(() => stage.close())

  it('stays stopped if it did not run before', async () => {
    stage = await openHostStage()
    stage.writeHostConfig(hostConfig())
    await stage.publish('1.0.0', versionFiles('1.0.0'))
    stage.writePlan(planWith())
    assert.equal((await stage.deployHere()).outputs['outcome'], 'success')
    await stage.publish('2.0.0', versionFiles('2.0.0'))
    stage.standIns.setState('greeter.service', 'inactive')
    stage.standIns.before('systemctl', 'start', KILL)
    stage.writePlan(planWith('action: start, plugin: greeter'))
    assert.equal((await stage.deployHere()).signal, 'SIGKILL')
    stage.standIns.before('systemctl', 'start', ':')
    assert.equal(runRecover(['--project-root', stage.root], stage.standIns.path).status, 0)
    assert.ok(isPending(stage.root))
    stage.writePlan(planWith())
    assert.equal((await stage.deployHere({ version: '1.0.0' })).outputs['outcome'], 'success')
    assert.deepEqual([stage.standIns.stateOf('greeter.service'), isPending(stage.root)], ['inactive', false])
  })

  it('is the one that the plan had stopped, not the unit of the whole project', { skip: ONLY_IN_CI }, async () => {
    stage = await openRunningHost()
    stage.standIns.add('make-db', KILL)
    stage.writePlan(planWith('action: stop, plugin: greeter', PROVISION, 'action: start, plugin: greeter'))
    assert.equal((await stage.deployHere()).signal, 'SIGKILL')
    assert.equal(runRecover(['--project-root', stage.root], stage.standIns.path).status, 0)
    const before = unitChanges(stage).length
    stage.writePlan(planWith())
    assert.equal((await stage.deployHere({ version: '1.0.0' })).outputs['outcome'], 'success')
    assert.deepEqual(unitChanges(stage).slice(before), ['restart greeter.service'])
    assert.deepEqual([stage.standIns.stateOf('greeter.service'), isPending(stage.root)], ['active', false])
  })
})

describe('a part with the name of a service of the host', () => {
  const files = (version: string): Record<string, string> => ({
    'plugins/sshd/plugin.yaml': `name: sshd\nversion: "${version}"\n`,
    'plugins/sshd/main.py': version,
    'deployment/install.yaml': `format_version: "1"
project_id: shop
version: "1"
steps:
  - {id: files, action: install_plugin, plugin: sshd, snapshot: true}
  - {id: up, action: restart, depends_on: [files]}
`,
  })
  let close = async (): Promise<void> => {}
  after(async () => await close())

  it('never has that service restarted in place of the unit of the project', { skip: ONLY_IN_CI }, async () => {
    const project = await openProjectStage()
    const standIns = makeStandIns(join(project.root, 'plugins/sshd/main.py'))
    close = async () => {
      standIns.close()
      await project.close()
    }
    writeFileSync(
      join(project.workspace.path, 'host-config.yaml'),
      'version: 1\nsupervisor: systemd\nsystemd: {project_unit: app.service}\n',
    )
    for (const unit of ['app.service', 'sshd.service']) standIns.setState(unit, 'active')
    const deploy = async (version: string): Promise<string | undefined> => {
      const inputs = { 'host-config': 'host-config.yaml', version }
      return (await project.deploy(inputs, { env: { PATH: standIns.path } })).outputs['outcome']
    }
    for (const version of ['1.0.0', '2.0.0']) await project.publish(version, files(version))
    assert.equal(await deploy('1.0.0'), 'success')
    standIns.before('systemctl', 'restart', '[ -e once ] || begin; touch once; exit 1')
    assert.equal(await deploy('2.0.0'), 'rolled_back')
    assert.ok(isPending(project.root))
    standIns.before('systemctl', 'restart', ':')
    const before = standIns.changes().length
    assert.equal(await deploy('1.0.0'), 'success')
    const changes = standIns.changes().slice(before)
    assert.deepEqual([...new Set(changes.map(change => change.join(' ')))], ['systemctl restart app.service'])
    assert.ok(!isPending(project.root))
  })
})
