import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { planServiceChange, restoreServices, type ServiceChange } from '../../../src/install/services/changes.ts'
import { type Service, type ServiceAction, superviseService } from '../../../src/install/services/supervise.ts'
import { collectLog } from '../prepared-host.ts'
import { makeStandIns, type StandIns } from './stand-ins.ts'

const UNIT: Service = { supervisor: 'systemd', scope: 'system', unit: 'web.service' }
const OTHER: Service = { ...UNIT, unit: 'other.service' }
const DEPLOYMENT: Service = {
  supervisor: 'kubernetes',
  namespace: 'apps',
  deployment: 'web',
  kubeconfig: null,
  context: null,
}
const PATH = process.env['PATH']

let standIns: StandIns
beforeEach(() => {
  standIns = makeStandIns()
  process.env['PATH'] = standIns.path
})
afterEach(() => {
  standIns.close()
  process.env['PATH'] = PATH
})

/** Performs these actions on the services as a plan would. Returns the changes. */
async function perform(...actions: [Service, ServiceAction][]): Promise<ServiceChange[]> {
  const { signal } = new AbortController()
  const changes: ServiceChange[] = []
  for (const [service, action] of actions) {
    const change = await planServiceChange({ service, part: 'web', action }, changes, signal)
    changes.push(change)
    await superviseService({ ...change, action })
  }
  return changes
}

async function restored(changes: ServiceChange[]): Promise<[string[], boolean, number]> {
  const earlier = standIns.changes().length
  const limits = { log: collectLog(), signal: new AbortController().signal }
  const { isRunning, problems } = await restoreServices(changes, limits)
  const calls = standIns
    .changes()
    .slice(earlier)
    .map(call => call.slice(1).join(' '))
  return [calls, isRunning, problems.length]
}

describe('restoreServices', () => {
  const rows: [string, string, ServiceAction[], string[], string][] = [
    ['restarts a service that was running and was restarted', 'active', ['restart'], ['restart web.service'], 'active'],
    ['restarts a service that was running and was stopped', 'active', ['stop'], ['restart web.service'], 'active'],
    [
      'makes only one restart of a service that was running, even after several actions',
      'active',
      ['stop', 'start', 'restart'],
      ['restart web.service'],
      'active',
    ],
    ['stops a service that was not running before', 'inactive', ['start'], ['stop web.service'], 'inactive'],
    [
      'stops a service that was not running before, even if it is stopped now',
      'inactive',
      ['start', 'stop'],
      ['stop web.service'],
      'inactive',
    ],
  ]
  for (const [name, before, actions, expected, after] of rows) {
    it(name, async () => {
      standIns.setState('web.service', before)
      const changes = await perform(...actions.map((action): [Service, ServiceAction] => [UNIT, action]))
      assert.deepEqual(await restored(changes), [expected, before === 'active', 0])
      assert.equal(standIns.stateOf('web.service'), after)
    })
  }

  it('names the services for which a cancelled run has no time left, and calls no supervisor', async () => {
    standIns.setState('web.service', 'active')
    const changes = await perform([UNIT, 'restart'])
    const earlier = standIns.calls().length
    const limits = { log: collectLog(), signal: AbortSignal.abort(new Error('late')) }
    const { isRunning, problems, isFinished } = await restoreServices(changes, limits)
    assert.deepEqual([isRunning, isFinished, standIns.calls().length], [false, false, earlier])
    assert.match(problems.join(), /^A cancelled run had no time to restore unit web\.service/)
  })

  it('restores first the service that was changed last', async () => {
    for (const unit of ['web.service', 'other.service']) standIns.setState(unit, 'active')
    const changes = await perform([UNIT, 'restart'], [OTHER, 'restart'])
    assert.deepEqual((await restored(changes))[0], ['restart other.service', 'restart web.service'])
    const again = await perform([UNIT, 'stop'], [OTHER, 'restart'], [UNIT, 'start'])
    assert.deepEqual((await restored(again))[0], ['restart web.service', 'restart other.service'])
  })

  it('continues after a service that it cannot restore, and reports that service', async () => {
    for (const unit of ['web.service', 'other.service']) standIns.setState(unit, 'active')
    const changes = await perform([UNIT, 'restart'], [OTHER, 'restart'])
    standIns.before('systemctl', 'restart', '[ "$service" = web.service ] || exit 1')
    assert.deepEqual(await restored(changes), [['restart other.service', 'restart web.service'], true, 1])
  })

  it('restores the replicas of a Kubernetes deployment', async () => {
    standIns.setState('web', '3')
    const changes = await perform([DEPLOYMENT, 'stop'], [DEPLOYMENT, 'start'], [DEPLOYMENT, 'stop'])
    assert.equal(standIns.stateOf('web'), '0')
    await restored(changes)
    assert.equal(standIns.stateOf('web'), '3')
  })

  it('makes systemd forget earlier starts, because its start limit would refuse the next one', async () => {
    standIns.setState('web.service', 'active')
    const changes = await perform([UNIT, 'restart'])
    standIns.before('systemctl', 'reset-failed', 'touch forgotten')
    standIns.before(
      'systemctl',
      'restart',
      '[ -e forgotten ] || { echo "start request repeated too quickly"; exit 1; }',
    )
    assert.deepEqual(await restored(changes), [['restart web.service'], true, 0])
  })

  it('restarts a unit even if systemd does not forget earlier starts', async () => {
    standIns.setState('web.service', 'active')
    const changes = await perform([UNIT, 'restart'])
    standIns.before('systemctl', 'reset-failed', 'exit 1')
    assert.deepEqual(await restored(changes), [['restart web.service'], true, 0])
  })

  it('repeats once a restart of a Kubernetes deployment that came too soon after another', async () => {
    standIns.setState('web', '2')
    const changes = await perform([DEPLOYMENT, 'restart'])
    const tooSoon = 'echo "if restart has already been triggered within the past second, please wait"; exit 1'
    standIns.before('kubectl', 'restart', `[ -e waited ] || { touch waited; ${tooSoon}; }`)
    const restart = '--namespace=apps rollout restart deployment/web'
    assert.deepEqual(await restored(changes), [[restart, restart], true, 0])
    standIns.before('kubectl', 'restart', tooSoon)
    assert.deepEqual(await restored(changes), [[restart, restart], false, 1])
  })

  it('counts a service that does not exist as stopped', async () => {
    const changes = await perform([UNIT, 'start'])
    standIns.before('systemctl', 'stop', 'echo "Unit web.service not loaded."; exit 5')
    assert.deepEqual((await restored(changes)).slice(1), [false, 1])
    standIns.setState('web.service', 'inactive')
    assert.deepEqual((await restored(changes)).slice(1), [false, 0])
  })

  it('can be repeated', async () => {
    standIns.setState('web.service', 'inactive')
    const changes = await perform([UNIT, 'start'])
    await restored(changes)
    assert.deepEqual(await restored(changes), [['stop web.service'], false, 0])
  })
})

describe('planServiceChange', () => {
  it('refuses a service whose state is unknown', async () => {
    process.env['PATH'] = '/nowhere'
    await assert.rejects(
      planServiceChange({ service: UNIT, part: 'web', action: 'stop' }, [], new AbortController().signal),
      error => error instanceof DeploymentError && error.code === 'step_failed',
    )
  })
})
