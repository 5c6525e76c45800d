import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import type { PlanStep } from '../../../src/core/plan/plan-step.ts'
import { performStep } from '../../../src/install/steps/perform-step.ts'
import { collectLog } from '../collected-log.ts'
import { contextOf, deploymentOf } from '../prepared-deployment.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { useStandIns } from '../services/stand-ins.ts'

const START: PlanStep = {
  id: 'up',
  dependsOn: [],
  snapshot: false,
  file: 'install.yaml',
  line: 1,
  column: 1,
  action: 'start',
  plugin: 'web',
}
const HOST_CONFIG = 'version: 1\nsupervisor: docker\nplugins: {web: {container: web}}\n'

async function performIdle(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const log = collectLog()
  const hostConfig = parseHostConfig(HOST_CONFIG, 'host.yaml')
  const context = await contextOf(t, deploymentOf(layout, { tools: { log } }), { steps: [START], hostConfig })
  return { log, end: performStep({ ...context, idle: new Set([START.id]) }, START) }
}

describe('an idle start step', () => {
  it('starts a service that does not run, and says so', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web', 'exited')
    const { log, end } = await performIdle(t)
    assert.deepEqual(await end, { status: 'done', did: 'container web was not running, and was started' })
    assert.match(log.lines.join('\n'), /web is not running, so it is started/)
    assert.equal(standIns.stateOf('web'), 'running')
  })

  it('leaves alone a service that is running', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web', 'running')
    const { log, end } = await performIdle(t)
    assert.deepEqual([await end, log.lines, standIns.changes()], ['unchanged', [], []])
  })

  it('refuses a service whose state is unknown, and does not say that the service does not run', async t => {
    const standIns = useStandIns(t)
    standIns.before('docker', 'inspect', 'echo no daemon; exit 1')
    const { log, end } = await performIdle(t)
    await assert.rejects(end, { code: 'step_failed', message: /is not known \(.*no daemon/ })
    assert.deepEqual([log.lines, standIns.changes()], [[], []])
  })

  it('does not say that it started a service that turned out to run', async t => {
    const standIns = useStandIns(t)
    standIns.setState('web', 'running')
    standIns.before('docker', 'inspect', '[ -e asked ] || { touch asked; echo no daemon; exit 1; }')
    const { log, end } = await performIdle(t)
    assert.deepEqual([await end, log.lines], ['unchanged', []])
  })
})
