import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { type Manifest, parseManifest } from '../../../src/core/content/manifest.ts'
import type { Kind } from '../../../src/core/identifiers.ts'
import { bindPlanToArtifact, bindPlanToProject, verifySources } from '../../../src/core/plan/binding.ts'
import { type Plan, PlanError, parsePlan } from '../../../src/core/plan/plan.ts'
import { manifestWith } from '../content/project-manifest.ts'

const FILE = 'deployment/install.yaml'
const CART = '{id: cart, action: install_plugin, plugin: cart}'
const PAY = '{id: pay, action: install_plugin, plugin: pay}'
const SEARCH = '{id: search, action: install_extension, extension: search}'

function manifest(more: object = {}): Manifest {
  const sha256 = '0'.repeat(64)
  const ids = ['cart', 'pay', 'twin', 'x.env']
  const plugins = ids.map(id => ({ id, version: '2.0.0', sha256 }))
  const extensions = [{ id: 'search' }, { id: 'twin' }]
  return parseManifest(JSON.stringify(manifestWith({ plugins, extensions, ...more })))
}

function plan(...steps: string[]): Plan {
  const head = 'format_version: 1\nproject_id: shop\nversion: 1.4.0\nsteps:\n'
  return parsePlan(head + steps.map(step => `  - ${step}\n`).join(''), FILE)
}

function problemLines(bound: Plan): number[] {
  try {
    bindPlanToProject(bound, manifest())
  } catch (error) {
    assert.ok(error instanceof PlanError)
    assert.equal(error.code, 'invalid_plan')
    assert.ok(error.problems.every(({ file }) => file === FILE))
    return error.problems.map(({ line }) => line)
  }
  return []
}

describe('bindPlanToProject', () => {
  it('orders the steps, and names the parts that they install and those that they do not', () => {
    const bound = bindPlanToProject(
      plan('{id: up, action: restart, plugin: cart, depends_on: [search, cart]}', CART, SEARCH),
      manifest(),
    )
    assert.deepEqual(
      bound.steps.map(({ id }) => id),
      ['search', 'cart', 'up'],
    )
    assert.deepEqual(
      bound.parts.map(({ shelf, id }) => `${shelf}/${id}`),
      ['extensions/search', 'plugins/cart'],
    )
    assert.deepEqual(
      bound.notInstalled.map(({ shelf, id }) => `${shelf}/${id}`),
      ['plugins/pay', 'plugins/twin', 'plugins/x.env', 'extensions/twin'],
    )
    assert.equal(bound.snapshot, false)
  })

  it('keeps snapshots when a step asks for it', () => {
    const bound = bindPlanToProject(plan(CART, '{id: a, action: extract, snapshot: true}'), manifest())
    assert.equal(bound.snapshot, true)
  })

  for (const from of ['addons/cart/.env.template', 'plugins/cart/.env.template']) {
    it(`accepts the template ${from} if plugins_dirname is addons`, () => {
      const step = '{id: env, action: write_env, plugin: cart, from: plugins/cart/.env.template, depends_on: [cart]}'
      const written = plan(CART, step)
      const steps = written.steps.map(step => (step.action === 'write_env' ? { ...step, from } : step))
      const bound = bindPlanToProject({ ...written, steps }, manifest({ plugins_dirname: 'addons' }))
      assert.partialDeepStrictEqual(bound.steps.at(-1), { from: 'plugins/cart/.env.template' })
    })
  }

  const cases: { name: string; steps: string[]; lines: number[] }[] = [
    {
      name: 'accepts steps that need no files before the files are installed',
      steps: ['{id: s, action: stop}', '{id: n, action: provision, plugin: cart}', CART],
      lines: [],
    },
    {
      name: 'accepts a step about one part before another is installed',
      steps: [CART, '{id: up, action: restart, plugin: cart}', SEARCH],
      lines: [],
    },
    {
      name: 'accepts a template of another plugin that is installed',
      steps: [CART, PAY, '{id: e, action: write_env, plugin: cart, from: plugins/pay/x}'],
      lines: [],
    },
    {
      name: 'accepts the settings of an extension',
      steps: [SEARCH, '{id: e, action: write_env, plugin: search, from: extensions/search/x}'],
      lines: [],
    },
    {
      name: 'accepts one of two parts with the same id',
      steps: ['{id: t, action: install_plugin, plugin: twin}'],
      lines: [],
    },
    { name: 'refuses a plan that installs nothing', steps: ['{id: a, action: prepare}'], lines: [4] },
    {
      name: 'refuses a plugin that the manifest lacks',
      steps: [CART, '{id: a, action: install_plugin, plugin: card}'],
      lines: [6],
    },
    {
      name: 'refuses an extension as a plugin',
      steps: [CART, '{id: a, action: install_plugin, plugin: search}'],
      lines: [6],
    },
    {
      name: 'refuses a plugin as an extension',
      steps: [CART, '{id: a, action: install_extension, extension: pay}'],
      lines: [6],
    },
    {
      name: 'refuses to install one part twice',
      steps: [CART, '{id: again, action: install_plugin, plugin: cart}'],
      lines: [6],
    },
    {
      name: 'refuses to install a plugin and an extension with the same id',
      steps: ['{id: a, action: install_plugin, plugin: twin}', '{id: b, action: install_extension, extension: twin}'],
      lines: [6],
    },
    { name: 'refuses an id that ends in .env', steps: ['{id: a, action: install_plugin, plugin: x.env}'], lines: [5] },
    {
      name: 'refuses steps for a part that the manifest lacks',
      steps: [CART, '{id: a, action: stop, plugin: other}', '{id: b, action: provision, plugin: other}'],
      lines: [6, 7],
    },
    {
      name: 'refuses to restart a part that no step installs',
      steps: [CART, '{id: a, action: restart, plugin: pay}'],
      lines: [6],
    },
    {
      name: 'refuses a template of a part that no step installs',
      steps: [CART, '{id: a, action: write_env, plugin: cart, from: plugins/pay/x}'],
      lines: [6],
    },
    {
      name: 'refuses a template of a longer id that begins with this id',
      steps: [CART, '{id: a, action: write_env, plugin: cart, from: plugins/cart2/x}'],
      lines: [6],
    },
    {
      name: 'refuses a template of an extension for the settings of a plugin',
      steps: [CART, SEARCH, '{id: a, action: write_env, plugin: cart, from: extensions/search/x}'],
      lines: [7],
    },
    {
      name: 'refuses write_env before its plugin is installed',
      steps: ['{id: a, action: write_env, plugin: cart, from: plugins/cart/x}', CART],
      lines: [5],
    },
    {
      name: 'refuses write_env before the part with its template is installed',
      steps: [CART, '{id: a, action: write_env, plugin: cart, from: plugins/pay/x}', PAY],
      lines: [6],
    },
    {
      name: 'refuses steps without a plugin before all parts are installed',
      steps: [CART, '{id: a, action: start}', '{id: b, action: restart}', '{id: c, action: healthcheck}', SEARCH],
      lines: [6, 7, 8],
    },
    {
      name: 'refuses a step that runs too early because of dependencies',
      steps: [
        '{id: cart, action: install_plugin, plugin: cart, depends_on: [ok]}',
        '{id: ok, action: healthcheck, plugin: cart}',
      ],
      lines: [6],
    },
    {
      name: 'reports all problems at once',
      steps: [
        '{id: a, action: restart, plugin: cart}',
        CART,
        '{id: b, action: install_plugin, plugin: nothing}',
        '{id: c, action: configure_plugin, plugin: nobody}',
        '{id: d, action: write_env, plugin: cart, from: extensions/search/x}',
      ],
      lines: [5, 7, 8, 9],
    },
  ]
  for (const { name, steps, lines } of cases) {
    it(name, () => assert.deepEqual(problemLines(plan(...steps)), lines))
  }

  for (const projectId of ['shop2', 'Shop']) {
    it(`refuses the plan of ${projectId}`, () => {
      assert.deepEqual(problemLines({ ...plan(CART), projectId }), [2])
    })
  }
})

describe('verifySources', () => {
  const source = '{marketplace_slug: pay}'
  const sourced = plan(`{id: pay, action: install_plugin, plugin: pay, source: ${source}}`).steps

  it('refuses a source that the signed manifest does not repeat, because the archive may contain a stub', () => {
    assert.throws(() => verifySources(sourced, manifest()), PlanError)
  })

  it('accepts a source that the manifest repeats in another form', () => {
    const plugins = [{ id: 'pay', version: '2.0.0', source: { marketplace_slug: 'pay', marketplace_version: '2.0.0' } }]
    verifySources(sourced, manifest({ plugins }))
    verifySources(plan(PAY).steps, manifest({ plugins }))
  })

  it('is not part of bindPlanToProject, because a rollback binds a plan to parts that were fetched earlier', () => {
    assert.equal(bindPlanToProject({ ...plan(PAY), steps: sourced }, manifest()).parts.length, 1)
  })
})

const PLUGIN = { kind: 'plugin', slug: 'my-plugin' } as const
const FILES = '{id: files, action: install_plugin, plugin: p1}'
const EXTENSION = '{id: files, action: install_extension, extension: e1}'

function artifactPlan(...steps: string[]): Plan {
  const head = 'format_version: 1\nproject_id: my-plugin\nversion: 1.4.0\nsteps:\n'
  return parsePlan(head + steps.map(step => `  - ${step}\n`).join(''), 'install.yaml')
}

function artifactProblemLines(bound: Plan, artifact: { kind: Kind; slug: string }): number[] {
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
      artifactPlan('{id: up, action: restart, plugin: p1, depends_on: [files]}', FILES, '{id: stop, action: stop}'),
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
      artifactPlan(EXTENSION, '{id: env, action: write_env, plugin: e1, from: extensions/e1/.env}'),
      { kind: 'service', slug: 'my-plugin' },
    )
    assert.equal(bound.id, 'e1')
  })

  for (const [which, step] of [
    ['the install step', '{id: files, action: install_plugin, plugin: p1, snapshot: true}'],
    ['another step', `${FILES}\n  - {id: z, action: extract, snapshot: true}`],
  ] as const) {
    it(`keeps a snapshot when ${which} asks for it`, () => {
      assert.equal(bindPlanToArtifact(artifactPlan(step), PLUGIN).snapshot, true)
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
    it(name, () => assert.deepEqual(artifactProblemLines(artifactPlan(...steps), artifact), lines))
  }
})
