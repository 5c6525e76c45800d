import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import {
  changeService,
  planServiceChange,
  restoreServices,
  type ServiceChange,
} from '../../../src/install/services/changes.ts'
import type { Service, ServiceAction } from '../../../src/install/services/supervise.ts'
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
  errors = []
  process.env['PATH'] = standIns.path
})
afterEach(() => {
  standIns.close()
  process.env['PATH'] = PATH
})

/** The messages of the actions that failed. */
let errors: string[] = []

/** Performs these actions on the services as a plan would, even after one fails. Returns the changes. */
async function perform(...actions: [Service, ServiceAction][]): Promise<ServiceChange[]> {
  const { signal } = new AbortController()
  const changes: ServiceChange[] = []
  for (const [service, action] of actions) {
    const change = await planServiceChange({ service, part: 'web', action }, changes, signal)
    changes.push(change)
    await changeService(change, action, { log: collectLog(), signal }).catch(error => errors.push(error.message))
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

describe('an action that the supervisor refused', () => {
  const CONTAINER: Service = { supervisor: 'docker', container: 'web' }
  const DENIED = 'echo "denied" >&2; exit 1'
  const supervisors: [Service, string, string, 'systemctl' | 'docker' | 'kubectl'][] = [
    [UNIT, 'web.service', 'active', 'systemctl'],
    [CONTAINER, 'web', 'running', 'docker'],
    [DEPLOYMENT, 'web', '2', 'kubectl'],
  ]
  const PODS = 'case $* in *restartCount*) cat pods 2>/dev/null || echo 1; exit ;; esac'
  for (const [service, name, running, program] of supervisors) {
    it(`says that the old process never stopped, and is not tried again (${program})`, async () => {
      standIns.setState(name, running)
      standIns.before(program, 'restart', DENIED)
      standIns.before('kubectl', 'get', PODS)
      const changes = await perform([service, 'restart'])
      assert.match(errors.join(), /The old process of .* never stopped\.$/)
      assert.deepEqual(await restored(changes), [[], true, 0])
    })

    it(`is tried again if the process was replaced meanwhile (${program})`, async () => {
      standIns.setState(name, running)
      standIns.before(program, 'restart', DENIED)
      standIns.before('kubectl', 'get', PODS)
      const changes = await perform([service, 'restart'])
      const replaced = program === 'kubectl' ? 'case $* in *restartCount*) echo 2; exit ;; esac' : 'begin'
      standIns.before(program, { systemctl: 'show', docker: 'inspect', kubectl: 'get' }[program], replaced)
      standIns.before(program, 'restart', ':')
      const [calls, isRunning] = await restored(changes)
      assert.deepEqual([calls.length, isRunning], [1, true])
    })
  }

  it('says so if the process was replaced, and the restart that failed is tried again', async () => {
    standIns.setState('web.service', 'active')
    standIns.before('systemctl', 'restart', 'begin; exit 1')
    const changes = await perform([UNIT, 'restart'])
    assert.match(errors.join(), /The old process of web\.service may have stopped\.$/)
    assert.deepEqual(await restored(changes), [['restart web.service'], false, 1])
  })

  it('is tried again if the service was stopped before', async () => {
    standIns.setState('web.service', 'active')
    standIns.before('systemctl', 'start', DENIED)
    const changes = await perform([UNIT, 'stop'], [UNIT, 'start'])
    assert.match(errors.join(), /web\.service was not running before/)
    assert.deepEqual(await restored(changes), [['restart web.service'], true, 0])
  })

  it('needs no stop if nothing was started', async () => {
    standIns.setState('web.service', 'inactive')
    standIns.before('systemctl', 'start', 'echo "Unit web.service is masked." >&2; exit 1')
    assert.deepEqual(await restored(await perform([UNIT, 'start'])), [[], false, 0])
  })

  it('leaves it unknown which version runs if a recovery is refused', async () => {
    standIns.setState('web.service', 'active')
    standIns.before('systemctl', 'restart', DENIED)
    const limits = { log: collectLog(), signal: new AbortController().signal }
    const dead = { service: UNIT, part: 'web', was_running: true, replicas: null }
    const { problems, isBroken, unrestored } = await restoreServices([dead], limits)
    assert.deepEqual([isBroken, unrestored], [false, ['web']])
    assert.match(problems.join(), /perhaps of the other version\.$/)
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
