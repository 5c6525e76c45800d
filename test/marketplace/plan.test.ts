import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { runToEnd } from '../../src/core/log.ts'
import { parsePlanSlowly } from '../../src/core/plan/plan.ts'
import { SourceError } from '../../src/core/yaml/problems.ts'
import { type PlanSources, readyArtifactPlan } from '../../src/marketplace/plan.ts'

const head = (id = 'tick') => `format_version: "1"\nproject_id: ${id}\nversion: 1.0.0\nsteps:\n`
const FILES = '  - {id: files, action: install_plugin, plugin: tick}\n'
const NO_SUPERVISOR = /needs a supervisor .* in the host config, but the host-config input names no file$/

interface Case {
  readonly plan: string
  readonly kind?: PlanSources['kind']
  readonly hostConfig?: string
  readonly found: readonly [line: number, message: RegExp][]
}

/**
 * Each of these plans is malformed. Its other mistakes must be reported, too, but not problems that only follow from
 * the malformed part.
 */
const CASES: Readonly<Record<string, Case>> = {
  'a time that is too long, another project, another kind and an unknown plugin': {
    plan: `${head('tock')}${FILES}  - {id: ok, action: healthcheck, plugin: tikcd, timeout: 11m}\n`,
    kind: 'service',
    hostConfig: 'version: 1\nsupervisor: none\n',
    found: [
      [2, /^project_id must be the slug "tick", but found "tock"/],
      [5, /^step "files": install_plugin does not install a service/],
      [6, /^step "ok": plugin must be "tick", which this plan installs, but found "tikcd"$/],
      [6, /^step "ok": timeout must be 1 to 600 seconds/],
    ],
  },
  'an unknown action for an unknown plugin, one id twice, and no supervisor': {
    plan: `${head()}${FILES}  - {id: up, action: upp, plugin: tikcd}\n  - {id: up, action: restart}\n`,
    found: [
      [6, /^step "up": plugin must be "tick", .* found "tikcd"$/],
      [6, /^step "up": unknown action "upp"/],
      [7, /^step "up": restart needs a supervisor/],
      [7, /^step "up": another step already has this id$/],
    ],
  },
  'an unknown key in a step that needs what the host lacks': {
    plan: `${head()}${FILES}  - {id: up, action: restart, plugn: tick}\n`,
    found: [
      [6, NO_SUPERVISOR],
      [6, /^step "up": unknown key "plugn"/],
    ],
  },
  'a misspelled installation, and no problem that follows from it': {
    plan: `${head()}  - {id: files, action: instal_plugin, plugin: tick}\n  - {id: up, action: configure_plugin, plugin: tick}\n`,
    found: [[5, /unknown action "instal_plugin"/]],
  },
  'an installation without its plugin, and no problem that follows from it': {
    plan: `${head()}  - {id: files, action: install_plugin}\n  - {id: up, action: configure_plugin, plugin: tick}\n  - {id: ok, action: healthcheck}\n`,
    found: [[5, /^step "files": plugin is missing/]],
  },
  'a dependency that does not exist, and no problem of order that follows from it': {
    plan: `${head()}  - {id: env, action: write_env, plugin: tick, from: plugins/tick/.env, depends_on: [fils]}\n${FILES}`,
    found: [[5, /depends on "fils", which is not in this plan/]],
  },
  'a time that cannot be read, which is not called too short': {
    plan: `${head()}${FILES}  - {id: ok, action: healthcheck, plugin: tick, timeout: long}\n`,
    hostConfig: 'version: 1\nplugins: {tick: {healthcheck: {tcp: "h:1", stable_for: 5m}}}\n',
    found: [[6, /^step "ok": timeout must be/]],
  },
  'a project id that is malformed': {
    plan: `format_version: "1"\nproject_id: A B\nversion: 1.0.0\nsteps:\n${FILES}  - {id: x, action: stop, plugin: y}\n`,
    hostConfig: 'version: 1\nsupervisor: none\n',
    found: [
      [2, /^project_id /],
      [6, /^step "x": plugin must be "tick"/],
    ],
  },
  'steps that are not a list': {
    plan: `${head('tock')}  a: b\n`,
    found: [
      [2, /project_id must be/],
      [5, /^steps must be a list/],
    ],
  },
}

describe('a malformed plan', () => {
  for (const [name, { plan, kind = 'plugin', hostConfig, found }] of Object.entries(CASES))
    it(`is refused with all its problems at once: ${name}`, () => {
      const { code, problems } = refusalOf({ kind, plan, hostConfig })
      assert.equal(code, 'invalid_plan')
      assert.deepEqual(
        problems.map(({ line }) => line),
        found.map(([line]) => line),
        JSON.stringify(problems),
      )
      for (const [, message] of found)
        assert.ok(
          problems.some(problem => message.test(problem.message)),
          String(message),
        )
    })
})

describe('a long plan with a mistake in every step', () => {
  const text = `${head()}${'  - {}\n'.repeat(300)}`
  const plan = { path: 'install.yaml', text }

  it('is read a second time for the later checks, with a pause at each of its steps', () => {
    const sources: PlanSources = { slug: 'tick', kind: 'plugin', plan, hostConfig: undefined }
    const pauses = pausesOf(readyArtifactPlan(sources)) - pausesOf(parsePlanSlowly(text, plan.path))
    assert.ok(pauses >= 300, String(pauses))
  })

  it('lists the first hundred problems of the later checks', () => {
    const stops = '  - {id: up, action: stop, plugin: other}\n'.repeat(300)
    const { problems } = refusalOf({ kind: 'plugin', plan: `${head()}${FILES}${stops}`, hostConfig: undefined })
    const later = problems.filter(({ message }) => /plugin must be "tick"|needs a supervisor/.test(message))
    // Two problems for each of the first 50 steps.
    assert.deepEqual(
      later.map(({ line }) => line),
      Array.from({ length: 100 }, (_, index) => 6 + Math.floor(index / 2)),
    )
  })
})

describe('the problems of a plan and a host config', () => {
  it('are listed file by file, each with the code of its file', () => {
    const plan = `${head('tock')}${FILES}  - {id: up, action: restart}\n`
    const { code, problems } = refusalOf({ kind: 'service', plan, hostConfig: 'version: 2\nsupervisr: none\n' })
    assert.equal(code, 'invalid_plan')
    assert.deepEqual(
      problems.map(({ file, line, code: own }) => [file, line, own]),
      [
        ['install.yaml', 2, undefined],
        ['install.yaml', 5, undefined],
        ['host.yaml', 1, 'invalid_host_config'],
        ['host.yaml', 2, 'invalid_host_config'],
      ],
    )
  })

  it('do not include the plan if only the host config has a mistake', () => {
    const plan = `${head()}${FILES}  - {id: up, action: restart}\n`
    const { code, problems } = refusalOf({ kind: 'plugin', plan, hostConfig: 'version: 1\nsupervisr: none\n' })
    assert.deepEqual([code, problems.length], ['invalid_host_config', 1])
  })
})

/** The number of times that refused work pauses before it throws. */
function pausesOf(work: Generator<void>): number {
  let pauses = 0
  assert.throws(() => {
    for (const _ of work) pauses += 1
  }, SourceError)
  return pauses
}

function refusalOf({
  kind,
  plan,
  hostConfig,
}: {
  kind: PlanSources['kind']
  plan: string
  hostConfig: string | undefined
}) {
  const sources: PlanSources = {
    slug: 'tick',
    kind,
    plan: { path: 'install.yaml', text: plan },
    hostConfig: hostConfig === undefined ? undefined : { path: 'host.yaml', text: hostConfig },
  }
  try {
    runToEnd(readyArtifactPlan(sources))
  } catch (error) {
    assert.ok(error instanceof SourceError, String(error))
    return error
  }
  throw new Error('nothing was refused')
}
