import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import {
  actionCommand,
  describeService,
  forgetStartsCommand,
  parseRestarts,
  parseState,
  projectServiceOf,
  restartsCommand,
  runCommand,
  type Service,
  type ServiceAction,
  saysMissing,
  serviceOf,
  stateCommand,
} from '../../../src/install/services/supervise.ts'

const SYSTEM: Service = { supervisor: 'systemd', scope: 'system', unit: 'app@1.service' }
const USER: Service = { ...SYSTEM, scope: 'user' }
const CONTAINER: Service = { supervisor: 'docker', container: 'app' }
const DEPLOYMENT: Service = {
  supervisor: 'kubernetes',
  namespace: 'apps',
  deployment: 'web',
  kubeconfig: null,
  context: null,
}
const REMOTE: Service = { ...DEPLOYMENT, kubeconfig: '/etc/kube config', context: 'prod' }

describe('actionCommand', () => {
  const rows: [Service, ServiceAction, number | null, string[]][] = [
    [SYSTEM, 'start', null, ['systemctl', 'start', 'app@1.service']],
    [SYSTEM, 'stop', null, ['systemctl', 'stop', 'app@1.service']],
    [SYSTEM, 'restart', null, ['systemctl', 'restart', 'app@1.service']],
    [USER, 'restart', null, ['systemctl', '--user', 'restart', 'app@1.service']],
    [CONTAINER, 'start', null, ['docker', 'start', 'app']],
    [CONTAINER, 'stop', null, ['docker', 'stop', 'app']],
    [CONTAINER, 'restart', null, ['docker', 'restart', 'app']],
    [DEPLOYMENT, 'start', null, ['kubectl', '--namespace=apps', 'scale', '--replicas=1', 'deployment/web']],
    [DEPLOYMENT, 'start', 0, ['kubectl', '--namespace=apps', 'scale', '--replicas=1', 'deployment/web']],
    [DEPLOYMENT, 'start', 3, ['kubectl', '--namespace=apps', 'scale', '--replicas=3', 'deployment/web']],
    [DEPLOYMENT, 'stop', 3, ['kubectl', '--namespace=apps', 'scale', '--replicas=0', 'deployment/web']],
    [DEPLOYMENT, 'restart', 3, ['kubectl', '--namespace=apps', 'rollout', 'restart', 'deployment/web']],
    [
      REMOTE,
      'restart',
      null,
      [
        'kubectl',
        '--kubeconfig=/etc/kube config',
        '--context=prod',
        '--namespace=apps',
        'rollout',
        'restart',
        'deployment/web',
      ],
    ],
  ]
  for (const [service, action, replicas, expected] of rows) {
    it(expected.join(' '), () => assert.deepEqual(actionCommand({ service, action, replicas }), expected))
  }
})

describe('stateCommand', () => {
  it('asks each supervisor with its own command', () => {
    assert.deepEqual(stateCommand(SYSTEM), ['systemctl', 'is-active', 'app@1.service'])
    assert.deepEqual(stateCommand(USER), ['systemctl', '--user', 'is-active', 'app@1.service'])
    assert.deepEqual(stateCommand(CONTAINER).toSpliced(3, 1), ['docker', 'inspect', '--format', 'app'])
    assert.deepEqual(stateCommand(REMOTE).toSpliced(-1), [
      'kubectl',
      '--kubeconfig=/etc/kube config',
      '--context=prod',
      '--namespace=apps',
      'get',
      'deployment/web',
    ])
  })
})

describe('runCommand', () => {
  it('asks each supervisor for a value that changes with a start', () => {
    assert.deepEqual(runCommand(USER), ['systemctl', '--user', 'show', '--property=InvocationID', 'app@1.service'])
    assert.deepEqual(runCommand(CONTAINER), ['docker', 'inspect', '--format', '{{.State.StartedAt}}', 'app'])
    assert.deepEqual(runCommand(REMOTE), [
      'kubectl',
      '--kubeconfig=/etc/kube config',
      '--context=prod',
      '--namespace=apps',
      'get',
      'deployment/web',
      '--output=jsonpath={.status.conditions[?(@.type=="Available")].lastTransitionTime}',
    ])
  })
})

describe('forgetStartsCommand', () => {
  it('exists only for systemd, because no other supervisor counts starts', () => {
    assert.deepEqual(forgetStartsCommand(SYSTEM), ['systemctl', 'reset-failed', 'app@1.service'])
    assert.deepEqual(forgetStartsCommand(USER), ['systemctl', '--user', 'reset-failed', 'app@1.service'])
    assert.deepEqual([forgetStartsCommand(CONTAINER), forgetStartsCommand(DEPLOYMENT)], [undefined, undefined])
  })
})

describe('parseState', () => {
  type Row = [exitCode: number, stdout: string, known: boolean, up: boolean, running: boolean, replicas?: number]
  const tables: [string, Service, Row[]][] = [
    [
      'systemd',
      SYSTEM,
      [
        [0, 'active\n', true, true, true],
        [3, 'activating\n', true, true, false],
        [0, 'reloading\n', true, true, false],
        [3, 'inactive\n', true, false, false],
        [4, 'inactive\n', true, false, false],
        [3, 'unknown\n', true, false, false],
        [3, 'failed\n', true, false, false],
        [3, 'deactivating\n', true, false, false],
        [1, '', false, false, false],
        [0, 'something else\n', false, false, false],
      ],
    ],
    [
      'docker',
      CONTAINER,
      [
        [0, 'running\n', true, true, true],
        [0, 'running healthy\n', true, true, true],
        [0, 'running starting\n', true, true, false],
        [0, 'running unhealthy\n', true, true, false],
        [0, 'restarting\n', true, true, false],
        [0, 'exited\n', true, false, false],
        [0, 'created\n', true, false, false],
        [0, 'paused\n', true, false, false],
        [1, 'running\n', false, false, false],
      ],
    ],
    [
      'kubernetes: generation, observed, wanted, updated, available, all',
      DEPLOYMENT,
      [
        [0, '2 2 3 3 3 3', true, true, true, 3],
        [0, '2 1 3 3 3 3', true, true, false, 3],
        [0, '2 2 3 2 3 3', true, true, false, 3],
        [0, '2 2 3 3 2 3', true, true, false, 3],
        [0, '2 2 3 3 3 4', true, true, false, 3],
        [0, '2 2 3 3  3', true, true, false, 3],
        [0, '1  1   ', true, true, false, 1],
        [0, '2 2 0   ', true, false, false, 0],
        [1, '2 2 3 3 3 3', false, false, false, 0],
        [0, 'no such thing', false, false, false, NaN],
      ],
    ],
  ]
  for (const [name, service, rows] of tables) {
    describe(name, () => {
      for (const [exitCode, stdout, known, up, running, replicas = null] of rows) {
        it(`${JSON.stringify(stdout)} with exit code ${exitCode}`, () => {
          const state = parseState(service, { code: exitCode, stdout })
          assert.deepEqual([state.known, state.up, state.running], [known, up, running])
          if (known) assert.equal(state.replicas, replicas)
        })
      }
    })
  }
})

describe('the answer in words', () => {
  const answers: [Service, string, string][] = [
    [SYSTEM, 'activating\n', 'is activating (ActiveState), expected active'],
    [CONTAINER, 'running unhealthy\n', 'has status running, health unhealthy'],
    [CONTAINER, 'exited\n', 'has status exited'],
    [DEPLOYMENT, '5 5 1 1  1', 'has replicas 1, updated 1, available 0, existing 1, generation 5, observed 5'],
    [
      DEPLOYMENT,
      '5 4 5 5 1 6 {"app":"web"}',
      'has replicas 5, updated 5, available 1, existing 6, generation 5, observed 4',
    ],
  ]
  for (const [service, stdout, expected] of answers) {
    it(`names each field of ${JSON.stringify(stdout)}`, () =>
      assert.equal(parseState(service, { code: 0, stdout }).words, expected))
  }
})

describe('the pods of a deployment', () => {
  it('are those with its labels', () => {
    const labels = (text: string) => parseState(DEPLOYMENT, { code: 0, stdout: `1 1 1 1 1 1 ${text}` }).labels
    assert.equal(labels('{"app":"web","tier":"x"}'), 'app=web,tier=x')
    assert.deepEqual([labels(''), labels('{}'), labels('map[app:web]'), labels('{"app":1}')], [null, null, null, null])
  })

  it('report how often their containers were restarted', () => {
    assert.deepEqual(restartsCommand(REMOTE as Extract<Service, { supervisor: 'kubernetes' }>, 'app=web'), [
      'kubectl',
      '--kubeconfig=/etc/kube config',
      '--context=prod',
      '--namespace=apps',
      'get',
      'pods',
      '--selector=app=web',
      '--output=jsonpath={.items[*].status.containerStatuses[*].restartCount}',
    ])
    assert.deepEqual([parseRestarts('0 2 1'), parseRestarts('3')], [3, 3])
  })
})

describe('saysMissing', () => {
  const answers: [Service, string, boolean][] = [
    [CONTAINER, 'Error: No such object: app', true],
    [CONTAINER, 'Error response from daemon: No such container: app', true],
    [CONTAINER, 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock.', false],
    [DEPLOYMENT, 'Error from server (NotFound): deployments.apps "app" not found', true],
    [DEPLOYMENT, 'The connection to the server localhost:8080 was refused', false],
    [SYSTEM, 'Failed to connect to bus: No such file or directory', false],
  ]
  for (const [service, output, isMissing] of answers) {
    it(`reads "${output}" as ${isMissing ? 'missing' : 'unknown'}`, () => {
      assert.equal(saysMissing(service, output), isMissing)
    })
  }
})

/** Describes the service of `web` on a host with this config; undefined if `web` has no service. */
function named(config: string, find = serviceOf): string | undefined {
  const service = find(parseHostConfig(`version: 1\n${config}`, 'host-config.yaml'), 'web')
  return service && describeService(service)
}

describe('serviceOf', () => {
  const rows: [string, string | undefined][] = [
    ['', undefined],
    ['supervisor: none', undefined],
    ['supervisor: systemd', 'unit web.service'],
    ['supervisor: systemd\nsystemd: {scope: user, unit: "app-{id}@{id}.service"}', 'user unit app-web@web.service'],
    ['supervisor: systemd\nplugins: {web: {unit: own.service}}', 'unit own.service'],
    ['supervisor: systemd\nplugins: {web: {unit: "own-{id}.service"}}', 'unit own-web.service'],
    ['supervisor: systemd\nplugins: {other: {unit: own.service}}', 'unit web.service'],
    ['supervisor: docker', 'container web'],
    ['supervisor: docker\ndocker: {container: "app_{id}"}', 'container app_web'],
    ['supervisor: docker\nplugins: {web: {container: own}}', 'container own'],
    ['supervisor: kubernetes', 'deployment default/web'],
    ['supervisor: kubernetes\nkubernetes: {namespace: apps, deployment: "{id}-v1"}', 'deployment apps/web-v1'],
    ['supervisor: kubernetes\nplugins: {web: {deployment: own}}', 'deployment default/own'],
  ]
  for (const [config, expected] of rows) {
    it(`${JSON.stringify(config)}: ${expected}`, () => assert.equal(named(config), expected))
  }
})

describe('projectServiceOf', () => {
  it('finds the project-wide unit, if there is one', () => {
    const config = 'supervisor: systemd\nsystemd: {project_unit: app.service}\nplugins: {web: {unit: own.service}}'
    assert.equal(named(config, projectServiceOf), 'unit app.service')
    assert.equal(named(config, serviceOf), 'unit own.service')
    assert.equal(named('supervisor: systemd', projectServiceOf), 'unit web.service')
    assert.equal(named('', projectServiceOf), undefined)
  })
})
