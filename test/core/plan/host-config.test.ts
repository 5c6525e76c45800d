import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ConfigError } from '../../../src/core/errors.ts'
import { HostConfigError, parseHostConfig } from '../../../src/core/plan/host-config.ts'

const FULL = `version: 1
supervisor: systemd
systemd: {scope: user, unit: "app-{id}.service", project_unit: app.service}
docker: {container: "c-{id}"}
kubernetes: {namespace: shop, deployment: "{id}", kubeconfig: /etc/kube, context: prod}
plugins:
  my-plugin:
    unit: my-plugin.service
    healthcheck: {http: "http://127.0.0.1:8080/health", status: 204, interval: 1s, stable_for: 3s}
provision:
  my-plugin: {command: [/usr/local/bin/make-db, --fast], env: {PGHOST: localhost}, timeout: 5m}
notify:
  deployed: {command: [/usr/local/bin/tell-team], timeout: 30s}
`

function positionsOf(text: string): number[][] {
  try {
    parseHostConfig(text, 'host.yaml')
  } catch (error) {
    assert.ok(error instanceof HostConfigError && error instanceof ConfigError)
    assert.equal(error.code, 'invalid_host_config')
    assert.ok(error.problems.every(({ file }) => file === 'host.yaml'))
    return error.problems.map(({ line, column }) => [line, column])
  }
  return assert.fail('the host config was accepted')
}

describe('parseHostConfig', () => {
  it('reads a complete host config', () => {
    const config = parseHostConfig(FULL, 'host.yaml')
    assert.equal(config.supervisor, 'systemd')
    assert.deepEqual(config.systemd, { scope: 'user', unit: 'app-{id}.service', projectUnit: 'app.service' })
    assert.deepEqual(config.docker, { container: 'c-{id}' })
    assert.deepEqual(config.kubernetes, {
      namespace: 'shop',
      deployment: '{id}',
      kubeconfig: '/etc/kube',
      context: 'prod',
    })
    assert.deepEqual(config.plugins.get('my-plugin'), {
      unit: 'my-plugin.service',
      healthcheck: {
        probe: { type: 'http', url: 'http://127.0.0.1:8080/health', status: 204 },
        intervalSeconds: 1,
        stableForSeconds: 3,
      },
    })
    assert.deepEqual(config.provision.get('my-plugin'), {
      command: ['/usr/local/bin/make-db', '--fast'],
      env: { PGHOST: 'localhost' },
      timeoutSeconds: 300,
    })
    assert.deepEqual(config.notify.get('deployed'), {
      command: ['/usr/local/bin/tell-team'],
      env: {},
      timeoutSeconds: 30,
    })
  })

  it('fills in defaults, but none for the supervisor', () => {
    const config = parseHostConfig('version: 1', 'host.yaml')
    assert.equal(config.supervisor, undefined)
    assert.deepEqual(config.systemd, { scope: 'system', unit: '{id}.service' })
    assert.deepEqual(config.docker, { container: '{id}' })
    assert.deepEqual(config.kubernetes, { namespace: 'default', deployment: '{id}' })
    assert.equal(config.plugins.size + config.provision.size + config.notify.size, 0)
  })

  it('reads the version of the host framework', () => {
    const config = parseHostConfig('version: 1\nframework: {version: "2.10"}', 'host.yaml')
    assert.equal(config.frameworkVersion, '2.10')
    assert.equal(parseHostConfig('version: 1\nframework: {version: 2.1.0}', 'host.yaml').frameworkVersion, '2.1.0')
  })

  it('distinguishes supervisor: none from no supervisor', () => {
    assert.equal(parseHostConfig('version: 1\nsupervisor: none', 'host.yaml').supervisor, 'none')
  })

  it('does not mistake a built-in property of every object for an entry', () => {
    assert.equal(parseHostConfig('version: 1', 'host.yaml').plugins.get('constructor'), undefined)
  })

  const probes = {
    'tcp: "localhost:80"': { type: 'tcp', address: 'localhost:80' },
    'tcp: "[::1]:65535"': { type: 'tcp', address: '[::1]:65535' },
    'http: "https://h/x?y=1"': { type: 'http', url: 'https://h/x?y=1', status: 200 },
    'command: [check, ""]': { type: 'command', command: ['check', ''] },
  }
  for (const [written, probe] of Object.entries(probes)) {
    it(`reads the health check ${written}`, () => {
      const config = parseHostConfig(`version: 1\nplugins: {p: {healthcheck: {${written}}}}`, 'host.yaml')
      assert.deepEqual(config.plugins.get('p')?.healthcheck, { probe, intervalSeconds: 1, stableForSeconds: 0 })
    })
  }

  const refused: { name: string; line: string; column: number }[] = [
    { name: 'an unknown key', line: 'supervisr: systemd', column: 1 },
    { name: 'an unknown supervisor', line: 'supervisor: cron', column: 13 },
    { name: 'a unit that is an option', line: 'systemd: {unit: "--now"}', column: 17 },
    { name: 'a unit with a space', line: 'systemd: {unit: "a b"}', column: 17 },
    { name: 'a unit with another placeholder', line: 'systemd: {unit: "{slug}.service"}', column: 17 },
    { name: 'a unit that is a path', line: 'systemd: {unit: "../x"}', column: 17 },
    { name: 'an unknown scope', line: 'systemd: {scope: all}', column: 18 },
    { name: 'a container that is an option', line: 'docker: {container: -f}', column: 21 },
    { name: 'a namespace in capitals', line: 'kubernetes: {namespace: Shop}', column: 25 },
    { name: 'a context that is an option', line: 'kubernetes: {context: --all}', column: 23 },
    { name: 'an unknown key of an entry', line: 'plugins: {p: {unti: x}}', column: 15 },
    { name: 'an id in capitals', line: 'plugins: {P: {}}', column: 11 },
    { name: 'an id that is a built-in property of every object', line: 'plugins: {__proto__: {}}', column: 11 },
    { name: 'a program in a home folder', line: 'provision: {p: {command: [~/bin/x]}}', column: 27 },
    { name: 'a program in a variable', line: 'provision: {p: {command: ["$HOME/x"]}}', column: 27 },
    { name: 'an empty health check', line: 'plugins: {p: {healthcheck: {}}}', column: 28 },
    {
      name: 'a health check of two kinds',
      line: 'plugins: {p: {healthcheck: {tcp: "h:1", http: "http://h"}}}',
      column: 28,
    },
    { name: 'a status without http', line: 'plugins: {p: {healthcheck: {tcp: "h:1", status: 200}}}', column: 28 },
    { name: 'a health check of a file', line: 'plugins: {p: {healthcheck: {http: "file:///x"}}}', column: 35 },
    { name: 'a health check with a user', line: 'plugins: {p: {healthcheck: {http: "http://u@h/"}}}', column: 35 },
    {
      name: 'a health check with a password',
      line: 'plugins: {p: {healthcheck: {http: "http://u:p@h/"}}}',
      column: 35,
    },
    { name: 'a status of 99', line: 'plugins: {p: {healthcheck: {http: "http://h", status: 99}}}', column: 55 },
    { name: 'port 65536', line: 'plugins: {p: {healthcheck: {tcp: "h:65536"}}}', column: 34 },
    { name: 'an interval of 0', line: 'plugins: {p: {healthcheck: {tcp: "h:1", interval: 0}}}', column: 51 },
    { name: 'a command line in one string', line: 'provision: {p: {command: make-db --fast}}', column: 26 },
    { name: 'an empty command', line: 'provision: {p: {command: []}}', column: 26 },
    { name: 'a command without a program', line: 'provision: {p: {command: [""]}}', column: 27 },
    { name: 'an argument that is a number', line: 'provision: {p: {command: [a, 1]}}', column: 30 },
    { name: 'an argument with a NUL', line: 'provision: {p: {command: [a, "\\0"]}}', column: 30 },
    { name: 'a missing command', line: 'provision: {p: {}}', column: 16 },
    { name: 'an environment name with =', line: 'provision: {p: {command: [a], env: {"A=B": x}}}', column: 37 },
    {
      name: 'an environment value that is a number',
      line: 'provision: {p: {command: [a], env: {PORT: 1}}}',
      column: 43,
    },
    { name: 'a timeout of two hours', line: 'provision: {p: {command: [a], timeout: 2h}}', column: 40 },
    { name: 'a version of the framework that is a number', line: 'framework: {version: 2.10}', column: 22 },
    { name: 'a version of the framework that is a condition', line: 'framework: {version: ">=2"}', column: 22 },
    { name: 'a framework without a version', line: 'framework: {}', column: 12 },
    { name: 'an event with a dot', line: 'notify: {a.b: {command: [a]}}', column: 10 },
  ]
  for (const { name, line, column } of refused) {
    it(`refuses ${name} at its position`, () => {
      assert.deepEqual(positionsOf(`version: 1\n${line}`), [[2, column]])
    })
  }

  it('refuses a file without a version, and one that is not a map', () => {
    assert.deepEqual(positionsOf('supervisor: none'), [[1, 1]])
    assert.deepEqual(positionsOf(''), [[1, 1]])
    assert.deepEqual(positionsOf('version: 2'), [[1, 10]])
  })

  it('reports all problems at once', () => {
    assert.deepEqual(
      positionsOf('version: 2\nsupervisor: x\nfoo: !y 1\nplugins: {p: {unit: 3}}\nversion: 1').map(([line]) => line),
      [2, 3, 3, 4, 5],
    )
  })

  it('suggests the intended key', () => {
    assert.throws(() => parseHostConfig('version: 1\nplugins: {p: {healthcheck: {htp: x, tcp: "h:1"}}}', 'host.yaml'), {
      message: /plugins\.p\.healthcheck: unknown key "htp"; did you mean "http"\?/,
    })
  })
})
