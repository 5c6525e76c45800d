import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import { parsePlan } from '../../../src/core/plan/plan.ts'
import { checkPlanNeeds, isNamedBy, verifyServiceNames } from '../../../src/core/plan/ready.ts'
import { ACTIONS } from '../../../src/core/plan/step.ts'

const EVERY_ACTION = [
  '{id: prepare, action: prepare}',
  '{id: download, action: download}',
  '{id: extract, action: extract}',
  '{id: rollback, action: rollback}',
  '{id: provision, action: provision, plugin: p}',
  '{id: install_plugin, action: install_plugin, plugin: p}',
  '{id: install_extension, action: install_extension, extension: e}',
  '{id: configure_plugin, action: configure_plugin, plugin: p}',
  '{id: write_env, action: write_env, plugin: p, from: plugins/p/x}',
  '{id: start, action: start}',
  '{id: stop, action: stop}',
  '{id: restart, action: restart}',
  '{id: healthcheck, action: healthcheck}',
  '{id: notify, action: notify, event: deployed}',
]

const COMMANDS = 'provision: {p: {command: [a]}}\nnotify: {deployed: {command: [b]}}'
const CHECK_P = 'plugins: {p: {healthcheck: {tcp: "h:1"}}}'
const CHECK_BOTH = 'plugins: {p: {healthcheck: {tcp: "h:1"}}, e: {healthcheck: {tcp: "h:1"}}}'

const cases: { name: string; config: string | undefined; lacking: string[]; skipped: string[] }[] = [
  {
    name: 'no host config',
    config: undefined,
    lacking: ['provision', 'start', 'stop', 'restart', 'healthcheck'],
    skipped: ['notify'],
  },
  {
    name: 'an empty host config',
    config: '',
    lacking: ['provision', 'start', 'stop', 'restart', 'healthcheck'],
    skipped: ['notify'],
  },
  { name: 'a supervisor and commands', config: `supervisor: docker\n${COMMANDS}`, lacking: [], skipped: [] },
  {
    name: 'supervisor: none and commands',
    config: `supervisor: none\n${COMMANDS}`,
    lacking: [],
    skipped: ['start', 'stop', 'restart', 'healthcheck'],
  },
  {
    name: 'supervisor: none and health checks for all',
    config: `supervisor: none\n${CHECK_BOTH}\n${COMMANDS}`,
    lacking: [],
    skipped: ['start', 'stop', 'restart'],
  },
  {
    name: 'health checks for all, no supervisor',
    config: `${CHECK_BOTH}\n${COMMANDS}`,
    lacking: ['start', 'stop', 'restart'],
    skipped: [],
  },
  {
    name: 'a health check for one of two, no supervisor',
    config: `${CHECK_P}\n${COMMANDS}`,
    lacking: ['start', 'stop', 'restart', 'healthcheck'],
    skipped: [],
  },
  {
    name: 'commands for another id and another event',
    config: 'supervisor: systemd\nprovision: {q: {command: [a]}}\nnotify: {failed: {command: [b]}}',
    lacking: ['provision'],
    skipped: ['notify'],
  },
]

describe('checkPlanNeeds', () => {
  const head = 'format_version: 1\nproject_id: x\nversion: a\nsteps:\n'
  const plan = parsePlan(head + EVERY_ACTION.map(step => `  - ${step}\n`).join(''), 'install.yaml')

  it('is tested with every action', () => {
    assert.deepEqual(plan.steps.map(({ action }) => action).toSorted(), ACTIONS.toSorted())
  })

  for (const { name, config, lacking, skipped } of cases) {
    it(`finds the steps that cannot run and those to skip, given ${name}`, () => {
      const hostConfig = config === undefined ? undefined : parseHostConfig(`version: 1\n${config}`, 'host.yaml')
      const needs = checkPlanNeeds(plan, hostConfig)
      const linesOfLacking = plan.steps.filter(({ id }) => lacking.includes(id)).map(({ line }) => line)
      assert.deepEqual(
        needs.problems.map(({ line }) => line),
        linesOfLacking,
      )
      assert.ok(needs.problems.every(({ file }) => file === 'install.yaml'))
      assert.deepEqual(
        needs.skipped.map(({ id }) => id),
        skipped,
      )
    })
  }

  it('asks for a supervisor, or for the health check of each part that lacks one', () => {
    const { problems } = checkPlanNeeds(plan, undefined)
    assert.match(
      problems.map(({ message }) => message).join(),
      /skips such steps\) or plugins\.p\.healthcheck and plugins\.e\.healthcheck in the host config/,
    )
  })

  const times: [timeout: string, stableFor: string, isRefused: boolean][] = [
    ['10', '9s', false],
    ['10', '10s', true],
    ['10', '11s', true],
    ['"2m"', '90s', false],
    ['1', '0', false],
  ]
  for (const supervisor of ['', 'supervisor: none\n', 'supervisor: docker\n']) {
    for (const [timeout, stableFor, isRefused] of times) {
      it(`${isRefused ? 'refuses' : 'accepts'} a timeout of ${timeout} with a stable_for of ${stableFor} (${supervisor.trim() || 'no supervisor'})`, () => {
        const one = parsePlan(
          `${head}  - {id: ok, action: healthcheck, plugin: p, timeout: ${timeout}}\n`,
          'install.yaml',
        )
        const check = `plugins: {p: {healthcheck: {tcp: "h:1", stable_for: ${stableFor}}}}`
        const { problems } = checkPlanNeeds(one, parseHostConfig(`version: 1\n${supervisor}${check}`, 'host.yaml'))
        assert.deepEqual(
          problems.map(({ line }) => line),
          isRefused ? [5] : [],
        )
      })
    }
  }

  it('compares the times of every installed part if a step names no plugin', () => {
    const checks = 'plugins: {p: {healthcheck: {tcp: "h:1"}}, e: {healthcheck: {tcp: "h:1", stable_for: 60s}}}'
    const { problems } = checkPlanNeeds(
      plan,
      parseHostConfig(`version: 1\nsupervisor: docker\n${checks}\n${COMMANDS}`, 'h'),
    )
    assert.match(problems.map(({ message }) => message).join(), /healthcheck .*30 s .*60 s .*plugins\.e\./)
  })

  it('advises raising the timeout only if a plan may set a longer one', () => {
    const one = parsePlan(`${head}  - {id: ok, action: healthcheck, plugin: p, timeout: 600}\n`, 'install.yaml')
    const check = (stableFor: number) => `plugins: {p: {healthcheck: {tcp: "h:1", stable_for: ${stableFor}}}}`
    const messageAt = (stableFor: number, plan = one) =>
      checkPlanNeeds(plan, parseHostConfig(`version: 1\n${check(stableFor)}`, 'host.yaml')).problems[0]?.message
    assert.match(messageAt(600) ?? '', /\. Lower stable_for$/)
    const short = parsePlan(`${head}  - {id: ok, action: healthcheck, plugin: p, timeout: 30}\n`, 'install.yaml')
    assert.match(messageAt(30, short) ?? '', /\. Raise the timeout, or lower stable_for$/)
  })

  it('uses the health check of the plugin that a step names', () => {
    const one = parsePlan(`${head}  - {id: ok, action: healthcheck, plugin: p}\n`, 'install.yaml')
    assert.deepEqual(checkPlanNeeds(one, parseHostConfig(`version: 1\n${CHECK_P}`, 'host.yaml')).problems, [])
  })
})

describe('verifyServiceNames', () => {
  const config = parseHostConfig('version: 1\nsupervisor: docker\n', 'host.yaml')
  const refusalOf = (removedIds: string[]): string => {
    try {
      verifyServiceNames(config, { steps: [], removedIds })
      return ''
    } catch (error) {
      return String(error)
    }
  }

  it('names one id, several ids, and the first of thousands', () => {
    assert.match(refusalOf(['cart']), /chooses the id cart, could .* with its container for this id\./)
    assert.match(refusalOf(['cart', 'till']), /chooses the ids cart, till, could .* for each of these ids\./)
    const many = refusalOf(Array.from({ length: 2000 }, (_, n) => `part-${n}`))
    assert.match(many, /part-19 and 1980 more, could/)
  })
})

describe('isNamedBy', () => {
  const templates: Record<string, boolean> = {
    'systemd: {}': false,
    'systemd: {unit: "{id}"}': false,
    'systemd: {unit: "{id}.timer"}': false,
    'systemd: {unit: "{id}@blue.service"}': false,
    'systemd: {unit: "app-{id}.service"}': true,
    'systemd: {unit: "app@{id}.service"}': true,
    'systemd: {unit: "{id}-app.service"}': true,
    'docker: {}': false,
    'docker: {container: "app-{id}"}': true,
    'kubernetes: {}': false,
    'kubernetes: {deployment: "{id}-app"}': true,
  }
  for (const [template, isNamed] of Object.entries(templates))
    it(`is ${isNamed} for any id with ${template}, and true for an id with a row`, () => {
      const text = `version: 1\nsupervisor: ${template.split(':')[0]}\n${template}\nplugins: {cart: {}}\n`
      const config = parseHostConfig(text, 'host.yaml')
      assert.deepEqual([isNamedBy(config, 'sshd'), isNamedBy(config, 'cart')], [isNamed, true])
    })
})
