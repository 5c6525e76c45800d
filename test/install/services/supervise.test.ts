import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { DeploymentError, type ErrorCode } from '../../../src/core/errors.ts'
import {
  type Limits,
  readServiceRun,
  readServiceState,
  type Service,
  type ServiceAction,
  superviseService,
} from '../../../src/install/services/supervise.ts'
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

function act(service: Service, action: ServiceAction, limits: Partial<Limits> = {}): Promise<readonly string[]> {
  return superviseService({ service, action, replicas: null }, limits)
}

/** Accepts a DeploymentError with this code and with a message that matches all of these patterns. */
function failsWith(code: ErrorCode, ...wanted: RegExp[]): (error: unknown) => boolean {
  return error => {
    assert.ok(error instanceof DeploymentError)
    assert.equal(error.code, code)
    for (const part of wanted) assert.match(error.message, part)
    return true
  }
}

describe('superviseService', () => {
  it("reports the exit code and the supervisor's output, shortened and on one line", async () => {
    standIns.before('systemctl', 'start', 'echo "##[error]masked"; yes x | head -c 9000; exit 5')
    await assert.rejects(act(UNIT, 'start'), error => {
      failsWith('step_failed', /unit web\.service/, /exit code 5/, /masked/)(error)
      const { message } = error as Error
      assert.ok(message.length < 2500)
      assert.doesNotMatch(message, /\n/)
      return true
    })
  })

  it('returns the warnings that a supervisor printed although it succeeded', async () => {
    const warning = "Warning: The unit file of web.service changed on disk. Run 'systemctl daemon-reload'."
    standIns.before('systemctl', 'restart', `echo "${warning}" >&2; echo nothing else`)
    assert.deepEqual(await act(UNIT, 'restart'), [`web.service restarted: ${warning}`])
    assert.deepEqual(await act(CONTAINER, 'restart'), [])
  })

  for (const [name, service, output, advice] of [
    [
      'polkit asks for a password',
      UNIT,
      'Interactive authentication required.',
      /polkit rule.*docs\/security\.md#what-/,
    ],
    ['polkit refuses', UNIT, 'Access denied', /polkit rule.*docs\/security\.md#what-/],
    ['the unit is masked', UNIT, 'Unit web.service is masked.', /Unmask the unit/],
    ['the unit is missing', UNIT, 'Unit web.service not found.', /correct its name in the host config/],
    ['the Docker socket refuses', CONTAINER, 'permission denied while trying to connect', /may not use this Docker/],
    ['the cluster refuses', DEPLOYMENT, 'Error from server (Forbidden): x is forbidden', /kubectl uses lacks this/],
  ] as const)
    it(`says what to do if ${name}`, async () => {
      for (const program of ['systemctl', 'docker', 'kubectl'] as const)
        standIns.before(program, 'restart', `echo "${output}" >&2; exit 1`)
      await assert.rejects(act(service, 'restart'), failsWith('step_failed', advice))
    })

  it('reports that the program is not on PATH', async () => {
    process.env['PATH'] = '/nowhere'
    for (const service of [UNIT, CONTAINER, DEPLOYMENT]) {
      await assert.rejects(act(service, 'restart'), failsWith('step_failed', /ENOENT/))
    }
  })

  it('times out', async () => {
    standIns.before('docker', 'restart', 'echo waiting; exec sleep 60')
    // A busy machine may need longer to start the program, which must print its line before the timeout.
    const attempts = [100, 1000, 60_000].map(timeoutMs => () => act(CONTAINER, 'restart', { timeoutMs }))
    let error: unknown
    for (const attempt of attempts) {
      error = await attempt().catch(reason => reason)
      if (String(error).includes('waiting')) break
    }
    assert.ok(failsWith('step_timed_out', /waiting/)(error))
  })

  it("rejects with the signal's reason when it is cancelled", async () => {
    standIns.before('docker', 'stop', 'exec sleep 60')
    const reason = new Error('cancelled')
    const controller = new AbortController()
    const stopping = act(CONTAINER, 'stop', { signal: controller.signal })
    controller.abort(reason)
    await assert.rejects(stopping, error => error === reason)
  })

  it("finds the user's manager even if the runtime directory is not in the environment", async () => {
    delete process.env['XDG_RUNTIME_DIR']
    await act({ ...UNIT, scope: 'user' }, 'start')
    assert.equal(standIns.environmentOf('systemctl')['XDG_RUNTIME_DIR'], `/run/user/${process.getuid?.()}`)
    await act(UNIT, 'start')
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
    it(`passes ${expected.join(', ')} to ${program}, and nothing else from the runner`, async () => {
      for (const name of WHEREABOUTS) process.env[name] = `its ${name}`
      process.env['GITHUB_TOKEN'] = 'a-token'
      await act(service, 'restart')
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
  it('stays the same until the service starts again', async () => {
    for (const service of [UNIT, CONTAINER, DEPLOYMENT]) {
      await act(service, 'restart')
      const before = await readServiceRun(service)
      assert.equal(await readServiceRun(service), before)
      await act(service, 'restart')
      assert.notEqual(await readServiceRun(service), before)
    }
  })

  it('is null if the supervisor gives no answer', async () => {
    standIns.before('systemctl', 'show', 'echo "no bus"; exit 1')
    assert.equal(await readServiceRun(UNIT), null)
    standIns.before('docker', 'inspect', 'exit 0')
    assert.equal(await readServiceRun(CONTAINER), null)
  })
})

describe('readServiceState', () => {
  it("reads the supervisor's answer, even with warnings around it", async () => {
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

  it('is unknown when the supervisor cannot be asked, and says why', async () => {
    standIns.before('docker', 'inspect', 'echo "no daemon" >&2; exit 1')
    const { known, running, evidence } = await readServiceState(CONTAINER)
    assert.deepEqual([known, running], [false, false])
    assert.match(evidence, /no daemon/)
    standIns.before('docker', 'inspect', 'exec sleep 60')
    assert.equal((await readServiceState(CONTAINER, { timeoutMs: 200 })).known, false)
    process.env['PATH'] = '/nowhere'
    assert.equal((await readServiceState(CONTAINER)).known, false)
  })
})
