import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { DeploymentError, type ErrorCode } from '../../../src/core/errors.ts'
import type { Service } from '../../../src/install/services/service.ts'
import { readServiceRun, readServiceState, superviseService } from '../../../src/install/services/supervise.ts'
import { makeStandIns, type StandIns } from './stand-ins.ts'

const UNIT: Service = { supervisor: 'systemd', scope: 'system', unit: 'web.service' }
const CONTAINER: Service = { supervisor: 'docker', container: 'web' }
const DEPLOYMENT: Service = {
  supervisor: 'kubernetes',
  namespace: 'apps',
  deployment: 'web',
  kubeconfig: null,
  context: null,
}
const WHEREABOUTS = ['XDG_RUNTIME_DIR', 'DBUS_SESSION_BUS_ADDRESS', 'DOCKER_HOST', 'DOCKER_CONTEXT', 'KUBECONFIG']
const OURS = { ...process.env }

let standIns: StandIns
beforeEach(() => {
  standIns = makeStandIns()
  process.env['PATH'] = standIns.path
})
afterEach(() => {
  standIns.close()
  for (const name of ['PATH', ...WHEREABOUTS]) {
    if (OURS[name] === undefined) delete process.env[name]
    else process.env[name] = OURS[name]
  }
})

/** Accepts a DeploymentError with this code that tells all of these. */
function failsWith(code: ErrorCode, ...told: RegExp[]): (error: unknown) => boolean {
  return error => {
    assert.ok(error instanceof DeploymentError)
    assert.equal(error.code, code)
    for (const part of told) assert.match(error.message, part)
    return true
  }
}

describe('superviseService', () => {
  it('tells the exit code and what the supervisor said, cut and free of runner commands', async () => {
    standIns.before('systemctl', 'start', 'echo "##[error]masked"; yes x | head -c 9000; exit 5')
    await assert.rejects(superviseService(UNIT, 'start', { replicas: null }), error => {
      failsWith('step_failed', /unit web\.service/, /exit code 5/, /masked/)(error)
      const { message } = error as Error
      assert.ok(message.length < 2500)
      assert.doesNotMatch(message, /##\[|\n/)
      return true
    })
  })

  it('tells that the program is not on PATH', async () => {
    process.env['PATH'] = '/nowhere'
    for (const service of [UNIT, CONTAINER, DEPLOYMENT]) {
      await assert.rejects(superviseService(service, 'restart', { replicas: null }), failsWith('step_failed', /ENOENT/))
    }
  })

  it('gives up after its time', async () => {
    standIns.before('docker', 'restart', 'echo waiting; exec sleep 60')
    const supervision = { replicas: null, timeoutMs: 300 }
    await assert.rejects(superviseService(CONTAINER, 'restart', supervision), failsWith('step_timed_out', /waiting/))
  })

  it("rejects with the signal's reason when it is cancelled", async () => {
    standIns.before('docker', 'stop', 'exec sleep 60')
    const reason = new Error('cancelled')
    const controller = new AbortController()
    const stopping = superviseService(CONTAINER, 'stop', { replicas: null, signal: controller.signal })
    controller.abort(reason)
    await assert.rejects(stopping, error => error === reason)
  })

  it('finds the manager of the user without its runtime directory in the environment', async () => {
    delete process.env['XDG_RUNTIME_DIR']
    await superviseService({ ...UNIT, scope: 'user' }, 'start', { replicas: null })
    assert.equal(standIns.environmentOf('systemctl')['XDG_RUNTIME_DIR'], `/run/user/${process.getuid?.()}`)
    await superviseService(UNIT, 'start', { replicas: null })
    assert.equal(standIns.environmentOf('systemctl')['XDG_RUNTIME_DIR'], undefined)
  })
})

describe('the environment of a supervisor', () => {
  const rows: [string, Service, string[]][] = [
    ['systemctl', UNIT, ['DBUS_SESSION_BUS_ADDRESS', 'XDG_RUNTIME_DIR']],
    ['systemctl', { ...UNIT, scope: 'user' }, ['DBUS_SESSION_BUS_ADDRESS', 'XDG_RUNTIME_DIR']],
    ['docker', CONTAINER, ['DOCKER_CONTEXT', 'DOCKER_HOST', 'XDG_RUNTIME_DIR']],
    ['kubectl', DEPLOYMENT, ['KUBECONFIG']],
  ]
  for (const [program, service, expected] of rows) {
    it(`tells ${program} where to look: ${expected.join(', ')}; and nothing else of the runner`, async () => {
      for (const name of WHEREABOUTS) process.env[name] = `its ${name}`
      process.env['GITHUB_TOKEN'] = 'a-token'
      await superviseService(service, 'restart', { replicas: null })
      await readServiceState(service)
      delete process.env['GITHUB_TOKEN']
      const { PWD: _, OLDPWD: __, SHLVL: ___, _: ____, ...seen } = standIns.environmentOf(program)
      const found = Object.keys(seen).filter(name => !['PATH', 'HOME', 'LANG', 'TZ'].includes(name))
      assert.deepEqual(found.sort(), expected)
      for (const name of expected) assert.equal(seen[name], `its ${name}`)
    })
  }
})

describe('readServiceRun', () => {
  it('is the same until the service is started again', async () => {
    for (const service of [UNIT, CONTAINER, DEPLOYMENT]) {
      await superviseService(service, 'restart', { replicas: null })
      const before = await readServiceRun(service)
      assert.equal(await readServiceRun(service), before)
      await superviseService(service, 'restart', { replicas: null })
      assert.notEqual(await readServiceRun(service), before)
    }
  })

  it('is null where the supervisor cannot tell', async () => {
    standIns.before('systemctl', 'show', 'echo "no bus"; exit 1')
    assert.equal(await readServiceRun(UNIT), null)
    standIns.before('docker', 'inspect', 'exit 0')
    assert.equal(await readServiceRun(CONTAINER), null)
  })
})

describe('readServiceState', () => {
  it('reads what the supervisor answers, whatever it warns of beside', async () => {
    for (const program of ['systemctl', 'docker', 'kubectl'] as const) {
      const action = { systemctl: 'is-active', docker: 'inspect', kubectl: 'get' }[program]
      standIns.before(program, action, 'echo "Warning: something is deprecated" >&2')
    }
    standIns.setState('web.service', 'active')
    assert.equal((await readServiceState(UNIT)).running, true)
    standIns.setState('web', 'running')
    assert.equal((await readServiceState(CONTAINER)).running, true)
    standIns.setState('web', '2')
    const { running, replicas } = await readServiceState(DEPLOYMENT)
    assert.deepEqual([running, replicas], [true, 2])
  })

  it('knows nothing when the supervisor cannot be asked, and says why', async () => {
    standIns.before('docker', 'inspect', 'echo "no daemon" >&2; exit 1')
    const { known, running, evidence } = await readServiceState(CONTAINER)
    assert.deepEqual([known, running], [false, false])
    assert.match(evidence, /no daemon/)
    standIns.before('docker', 'inspect', 'exec sleep 60')
    assert.equal((await readServiceState(CONTAINER, undefined, 200)).known, false)
    process.env['PATH'] = '/nowhere'
    assert.equal((await readServiceState(CONTAINER)).known, false)
  })
})
