import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import type { Kind } from '../../../src/core/identifiers.ts'
import { type Plan, PlanError, parsePlan } from '../../../src/core/plan/plan.ts'
import { bindPlanToArtifact } from '../../../src/core/plan/single-artifact-plan.ts'

const PLUGIN = { kind: 'plugin', slug: 'my-plugin' } as const
const FILES = '{id: files, action: install_plugin, plugin: p1}'
const EXTENSION = '{id: files, action: install_extension, extension: e1}'

function plan(...steps: string[]): Plan {
  const head = 'format_version: 1\nproject_id: my-plugin\nversion: 1.4.0\nsteps:\n'
  return parsePlan(head + steps.map(step => `  - ${step}\n`).join(''), 'install.yaml')
}

function problemLines(bound: Plan, artifact: { kind: Kind; slug: string }): number[] {
  try {
    bindPlanToArtifact(bound, artifact)
  } catch (error) {
    assert.ok(error instanceof PlanError)
    assert.equal(error.code, 'invalid_plan')
    return error.problems.map(({ line }) => line)
  }
  return []
}

describe('bindPlanToArtifact', () => {
  it('names the installed part and orders the steps', () => {
    const bound = bindPlanToArtifact(
      plan('{id: up, action: restart, plugin: p1, depends_on: [files]}', FILES, '{id: stop, action: stop}'),
      PLUGIN,
    )
    assert.equal(bound.id, 'p1')
    assert.equal(bound.installStep.id, 'files')
    assert.deepEqual(
      bound.steps.map(({ id }) => id),
      ['files', 'up', 'stop'],
    )
    assert.equal(bound.snapshot, false)
  })

  it('uses the id of an extension for a service', () => {
    const bound = bindPlanToArtifact(
      plan(EXTENSION, '{id: env, action: write_env, plugin: e1, from: extensions/e1/.env}'),
      { kind: 'service', slug: 'my-plugin' },
    )
    assert.equal(bound.id, 'e1')
  })

  for (const [which, step] of [
    ['the install step', '{id: files, action: install_plugin, plugin: p1, snapshot: true}'],
    ['another step', `${FILES}\n  - {id: z, action: extract, snapshot: true}`],
  ] as const) {
    it(`keeps a snapshot when ${which} asks for it`, () => {
      assert.equal(bindPlanToArtifact(plan(step), PLUGIN).snapshot, true)
    })
  }

  const cases: { name: string; steps: string[]; artifact?: { kind: Kind; slug: string }; lines: number[] }[] = [
    {
      name: 'refuses a source, which only a part of a project can have',
      steps: ['{id: files, action: install_plugin, plugin: p1, source: {marketplace_slug: x}}'],
      lines: [5],
    },
    {
      name: 'accepts steps that need no files before the files are installed',
      steps: ['{id: s, action: stop}', '{id: n, action: provision, plugin: p1}', FILES],
      lines: [],
    },
    {
      name: 'refuses the plan of another slug (contract 4.3, rule 6)',
      steps: [FILES],
      artifact: { kind: 'plugin', slug: 'my-plugin2' },
      lines: [2],
    },
    {
      name: 'refuses a slug that differs in case (contract 4.3, rule 6)',
      steps: [FILES],
      artifact: { kind: 'plugin', slug: 'My-Plugin' },
      lines: [2],
    },
    { name: 'refuses a plan that installs nothing', steps: ['{id: a, action: prepare}'], lines: [4] },
    {
      name: 'refuses a plan that installs two parts',
      steps: [FILES, '{id: b, action: install_plugin, plugin: p2}'],
      lines: [6],
    },
    {
      name: 'refuses a plan that installs one part twice',
      steps: [FILES, '{id: b, action: install_plugin, plugin: p1}'],
      lines: [6],
    },
    { name: 'refuses install_extension for a plugin', steps: [EXTENSION], lines: [5] },
    {
      name: 'refuses install_plugin for a service',
      steps: [FILES],
      artifact: { kind: 'service', slug: 'my-plugin' },
      lines: [5],
    },
    { name: 'refuses a step for another part', steps: [FILES, '{id: b, action: restart, plugin: p2}'], lines: [6] },
    {
      name: 'refuses provisioning for another part',
      steps: [FILES, '{id: b, action: provision, plugin: p2}'],
      lines: [6],
    },
    {
      name: 'refuses the template of another plugin',
      steps: [FILES, '{id: b, action: write_env, plugin: p1, from: plugins/p2/x}'],
      lines: [6],
    },
    {
      name: 'refuses the template of an extension with the same id',
      steps: [FILES, '{id: b, action: write_env, plugin: p1, from: extensions/p1/x}'],
      lines: [6],
    },
    {
      name: 'refuses a template of a longer id that begins with this id',
      steps: [FILES, '{id: b, action: write_env, plugin: p1, from: plugins/p11/x}'],
      lines: [6],
    },
    {
      name: 'refuses write_env before the files are installed',
      steps: ['{id: b, action: write_env, plugin: p1, from: plugins/p1/x}', FILES],
      lines: [5],
    },
    { name: 'refuses restart before the files are installed', steps: ['{id: b, action: restart}', FILES], lines: [5] },
    {
      name: 'refuses start and healthcheck steps that the installing step depends on',
      steps: [
        '{id: files, action: install_plugin, plugin: p1, depends_on: [ok]}',
        '{id: up, action: start}',
        '{id: ok, action: healthcheck, depends_on: [up]}',
      ],
      lines: [6, 7],
    },
    {
      name: 'reports all problems at once',
      steps: ['{id: b, action: restart, plugin: p2}', FILES, '{id: c, action: install_extension, extension: e}'],
      artifact: { kind: 'plugin', slug: 'other' },
      lines: [2, 5, 5, 7, 7],
    },
  ]
  for (const { name, steps, artifact = PLUGIN, lines } of cases) {
    it(name, () => assert.deepEqual(problemLines(plan(...steps), artifact), lines))
  }
})
