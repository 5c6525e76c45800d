import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { applyChanges, type PlannedChange } from '../../../src/install/changes/change.ts'
import { readInstalled, recordInstalled } from '../../../src/install/host/record.ts'
import { recoverDeadRun } from '../../../src/install/recovery/recover.ts'
import { whyLeftToCi } from '../../extent.ts'
import { rowOf } from '../prepared-host.ts'
import { useStandIns } from '../services/stand-ins.ts'
import { announced, begun, makeScene, type SceneRecord, STAGING, UPDATE } from './recovery-scene.ts'

const SYSTEMD = 'version: 1\nsupervisor: systemd\n'
const UNIT = `${SYSTEMD}systemd: {project_unit: app.service}\n`
const KUBERNETES = 'version: 1\nsupervisor: kubernetes\n'

const acted = (part: string | null, was_running = true): SceneRecord => ({ record: 'service', part, was_running })

/** A host with greeter and other of one origin, and the journal of a dead run that has updated greeter. */
async function openScene(t: TestContext, changes: readonly PlannedChange[], ...records: SceneRecord[]) {
  const scene = await makeScene(t)
  const standIns = useStandIns(t)
  const rows = [rowOf({ version: '1.0.0' }), rowOf({ id: 'other' }), rowOf({ id: 'foreign', slug: 'foreign' })]
  await recordInstalled(scene.layout, { rows, removed: [] })
  for (const change of changes) await applyChanges(scene.layout.root, [change])
  scene.writeJournal([...begun(scene.sender), ...announced(changes), ...records])
  const recoverWith = async (text?: string) =>
    await recoverDeadRun({
      ...scene.host,
      ids: () => ['greeter', 'fresh'],
      hostConfig: text === undefined ? undefined : { path: 'host-config.yaml', text },
    })
  const pending = () => readInstalled(scene.layout).flatMap(row => (row.service_pending ? [row.id] : []))
  const changed = () => standIns.changes().map(call => call.slice(1).join(' '))
  return { ...scene, standIns, recoverWith, pending, changed }
}

describe('the services of a dead run', () => {
  it('are restarted as the host config of the recovery names them, the last one first', async t => {
    const { standIns, recoverWith, changed, pending } = await openScene(t, UPDATE, acted('greeter'), acted('other'))
    for (const unit of ['a-greeter.service', 'a-other.service']) standIns.setState(unit, 'active')
    const closed = await recoverWith(`${SYSTEMD}systemd: {unit: "a-{id}.service"}\n`)
    assert.deepEqual(changed(), ['restart a-other.service', 'restart a-greeter.service'])
    assert.deepEqual([closed?.report.rollback?.healthy, pending()], [true, []])
  })

  it('include the project-wide unit, which only the host config names', async t => {
    const { standIns, recoverWith, changed } = await openScene(t, UPDATE, acted(null))
    standIns.setState('app.service', 'active')
    const closed = await recoverWith(UNIT)
    assert.deepEqual([changed(), closed?.report.rollback?.problems], [['restart app.service'], []])
  })

  for (const [name, config, why] of [
    ['there is no host config', undefined, 'there is no host config'],
    ['the host config cannot be used', 'version: 9', 'the host config host-config.yaml cannot be used'],
    ['the host config has no such unit', SYSTEMD, 'the host config has no such service'],
  ] as const)
    it(`are pending in all parts of the project if ${name}, and restored by the next run`, async t => {
      const { standIns, recoverWith, changed, pending, log } = await openScene(t, UPDATE, acted(null))
      const closed = await recoverWith(config)
      const problem = `The unit of the whole project was not restarted and not checked, because ${why}.`
      const { rollback, outcome } = closed?.report ?? {}
      assert.deepEqual([outcome, rollback?.problems, rollback?.healthy], ['rolled_back', [problem], null])
      assert.ok(log.lines.includes(`warning ${problem}`), log.lines.join('\n'))
      assert.deepEqual([changed(), pending()], [[], ['greeter', 'other']])
      standIns.setState('app.service', 'active')
      await recoverWith(UNIT)
      assert.deepEqual([changed(), pending()], [['restart app.service'], []])
    })

  it('stay pending until a restart succeeds', async t => {
    const { standIns, recoverWith, changed, pending, log } = await openScene(t, UPDATE, acted('greeter'))
    await recoverWith()
    standIns.setState('greeter.service', 'active')
    standIns.before('systemctl', 'restart', 'exit 1')
    await recoverWith(SYSTEMD)
    assert.match(log.lines.join('\n'), /^warning Could not restart unit greeter\.service/m)
    assert.deepEqual([changed(), pending()], [['restart greeter.service'], ['greeter']])
    standIns.before('systemctl', 'restart', ':')
    await recoverWith(SYSTEMD)
    assert.deepEqual(pending(), [])
  })

  it('are no longer pending once a check was made, even if it has found an unhealthy service', {
    skip: whyLeftToCi(),
  }, async t => {
    const { standIns, recoverWith, pending, log } = await openScene(t, UPDATE, acted('greeter'))
    await recoverWith()
    standIns.setState('greeter.service', 'active')
    const check = '{command: [/bin/false], interval: 30s}'
    await recoverWith(`${SYSTEMD}plugins: {greeter: {healthcheck: ${check}}}\n`)
    assert.match(log.lines.join('\n'), /^warning The restored greeter 1\.0\.0 was not healthy/m)
    assert.deepEqual(pending(), [])
  })

  it('are not touched if no part with a row has them', async t => {
    const { standIns, recoverWith, changed, log } = await openScene(t, UPDATE, acted('sshd'), acted('cron', false))
    for (const unit of ['sshd.service', 'cron.service']) standIns.setState(unit, 'active')
    await recoverWith(SYSTEMD)
    assert.deepEqual(changed(), [])
    const lines = log.lines.join('\n')
    assert.match(
      lines,
      /^warning The service of sshd was not restarted and not checked, because sshd is not installed/m,
    )
    assert.match(lines, /^warning The service of cron was not stopped, because cron is not installed/m)
  })

  it('are stopped if the run was a first install that had started them', async t => {
    const change: PlannedChange = { type: 'move', from: `${STAGING}/tree`, to: 'plugins/fresh' }
    const { standIns, recoverWith, changed, plugins } = await openScene(t, [change], acted('fresh', false))
    standIns.setState('fresh.service', 'active')
    await recoverWith(SYSTEMD)
    assert.deepEqual(changed(), ['stop fresh.service'])
    assert.equal('fresh' in plugins(), false)
  })

  it('on Kubernetes run with one replica again, with a warning, because no state file says how many there were', async t => {
    const { standIns, recoverWith, changed, log } = await openScene(t, UPDATE, acted('greeter'))
    standIns.setState('greeter', '0')
    await recoverWith(KUBERNETES)
    assert.match(changed()[0] ?? '', /scale --replicas=1 deployment\/greeter$/)
    assert.match(log.lines.join('\n'), /^warning deployment default\/greeter had been stopped, and now has 1 replica/m)
  })
})

describe('the parts that a dead run changed without acting on a service', () => {
  it('are checked by the health check in the host config of the recovery', async t => {
    const { recoverWith, changed } = await openScene(t, UPDATE)
    const config = 'version: 1\nplugins: {greeter: {healthcheck: {command: [/bin/true]}}}\n'
    const closed = await recoverWith(config)
    assert.deepEqual([closed?.report.rollback?.healthy, changed()], [true, []])
  })

  it('have an unknown health without a host config, and nothing is pending', async t => {
    const { recoverWith, pending } = await openScene(t, UPDATE)
    const closed = await recoverWith()
    assert.deepEqual([closed?.report.rollback?.healthy, closed?.report.rollback?.problems, pending()], [null, [], []])
  })
})
