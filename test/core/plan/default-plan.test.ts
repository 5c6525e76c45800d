import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { bindPlanToArtifact } from '../../../src/core/plan/binding.ts'
import { buildDefaultPlan } from '../../../src/core/plan/default-plan.ts'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import { readyPlan } from '../../../src/core/plan/ready.ts'
import { blocksOf } from '../../doc-pages.ts'

const PLUGIN = { kind: 'plugin', slug: 'greeter' } as const
const CHECK = 'plugins: {greeter: {healthcheck: {tcp: "h:1", stable_for: 20s}}}'

function defaultFor(config: string | undefined, artifact: { kind: 'plugin' | 'service'; slug: string } = PLUGIN) {
  const hostConfig = config === undefined ? undefined : parseHostConfig(`version: 1\n${config}`, 'host.yaml')
  return { hostConfig, ...buildDefaultPlan(artifact, hostConfig) }
}

describe('buildDefaultPlan', () => {
  const cases: [name: string, config: string | undefined, steps: string[], reason: RegExp][] = [
    ['no host config', undefined, [], /nothing else, because host-config names no file\.$/],
    [
      'an empty host config',
      '',
      [],
      /nothing else, because host\.yaml has neither a supervisor nor plugins\.greeter\./,
    ],
    ['supervisor: none', 'supervisor: none', [], /nothing else, because host\.yaml has neither/],
    ['a check for another id', CHECK.replace('greeter', 'other'), [], /nothing else, because host\.yaml has neither/],
    ['a check', CHECK, ['healthy'], /then checks its health, because host\.yaml has plugins\.greeter\.healthcheck/],
    ['a check and supervisor: none', `supervisor: none\n${CHECK}`, ['healthy'], /then checks its health/],
    ['systemd', 'supervisor: systemd', ['up', 'healthy'], /restarts .* host\.yaml has supervisor: systemd\.$/],
    ['docker', 'supervisor: docker', ['up', 'healthy'], /host\.yaml has supervisor: docker\.$/],
    [
      'kubernetes and a check',
      `supervisor: kubernetes\n${CHECK}`,
      ['up', 'healthy'],
      /kubernetes and plugins\.greeter\./,
    ],
  ]
  for (const [name, config, steps, reason] of cases) {
    it(`plans exactly the steps that a host with ${name} can run`, () => {
      const { plan, hostConfig, reason: found } = defaultFor(config)
      const { bound, skipped } = readyPlan(plan, hostConfig, () => bindPlanToArtifact(plan, PLUGIN))
      assert.deepEqual(
        bound.steps.map(({ id }) => id),
        ['prepare', 'files', ...steps],
      )
      assert.deepEqual([bound.id, bound.snapshot, skipped.size], ['greeter', true, 0])
      assert.match(
        found,
        /^install-plan names no file, so this is the default plan: it installs the plugin under its slug/,
      )
      assert.match(found, reason)
    })
  }

  it('restarts the unit of the project for a part that has no unit of its own', () => {
    const supervisor = 'supervisor: systemd\nsystemd: {project_unit: app.service}'
    const { text, reason } = defaultFor(supervisor)
    assert.match(text, /action: restart, depends_on: .*\n.*action: healthcheck, timeout: 60s/)
    assert.match(reason, /then restarts app\.service and checks/)
    const own = defaultFor(`${supervisor}\nplugins: {greeter: {unit: own.service}}`)
    assert.match(own.text, /action: restart, plugin: "greeter"/)
    assert.match(own.reason, /then restarts its service/)
  })

  it('installs a service as an extension', () => {
    const artifact = { kind: 'service', slug: 'clock' } as const
    const { plan } = defaultFor(undefined, artifact)
    assert.equal(bindPlanToArtifact(plan, artifact).installStep.action, 'install_extension')
  })

  for (const slug of [
    '123',
    '1e3',
    '0x1f',
    '1.0',
    'true',
    'null',
    '2001-01-01',
    'constructor',
    'a',
    `a${'.-_'.repeat(42)}z`,
  ]) {
    it(`keeps the slug ${slug} as it is, whatever it means in YAML`, () => {
      const { plan } = defaultFor('supervisor: docker', { kind: 'plugin', slug })
      assert.deepEqual([plan.projectId, bindPlanToArtifact(plan, { kind: 'plugin', slug }).id], [slug, slug])
    })
  }

  it('returns the plan that docs/plan.md shows', () => {
    const shown = blocksOf('docs/plan.md').map(({ text }) => text)
    assert.ok(shown.includes(defaultFor('supervisor: systemd').text))
  })

  it('indents no line, because a log may lose the indentation', () => {
    assert.doesNotMatch(defaultFor('supervisor: docker').text, /^\s/m)
  })

  for (const [stableFor, seconds] of [
    [0, 60],
    [30, 60],
    [31, 61],
    [570, 600],
    [600, 600],
  ] as const) {
    it(`waits ${seconds} s for a check that must be stable for ${stableFor} s`, () => {
      const { plan } = defaultFor(CHECK.replace('20s', `${stableFor}s`))
      const step = plan.steps.find(({ action }) => action === 'healthcheck')
      assert.equal(step?.action === 'healthcheck' && step.timeoutSeconds, seconds)
    })
  }
})
