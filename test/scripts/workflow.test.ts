import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import type { OperatorFile } from '../../scripts/try/operator-files.ts'
import type { Part } from '../../scripts/try/sources.ts'
import { workflowLines } from '../../scripts/workflow.ts'

const ROOT = join(import.meta.dirname, '../..')
const PLAN: OperatorFile = { input: 'install-plan', path: 'deploy/install.yaml', text: '' }
const SIGNED_PART: Part = {
  kind: 'plugin',
  slug: 'greeter',
  version: '1.0.0',
  folder: '/nowhere',
  isSigned: true,
  versionFile: 'plugin.yaml',
}

const SHOP = {
  kind: 'project',
  slug: 'prj_ShopExample01',
  version: '1.0.0',
  folder: '/nowhere',
  pluginsDirname: 'plugins',
  versionFile: undefined,
  isSigned: false,
} as const
const HOST: OperatorFile = { input: 'host-config', path: 'deploy/host-config.yaml', text: '' }

const inputs: Record<string, { required?: boolean }> = read('action.yml').inputs

describe('the workflow for a real host', () => {
  const rows: readonly (readonly [string, Part, readonly OperatorFile[]])[] = [
    ['a signed plugin', SIGNED_PART, []],
    ['a service with a plan', { ...SIGNED_PART, kind: 'service', slug: '1e3', isSigned: false }, [PLAN]],
  ]
  for (const [what, part, files] of rows) {
    it(`gives the action all inputs that it needs for ${what}, and only inputs that it has`, () => {
      const { jobs } = parse(workflowLines(part, files).join('\n'))
      const { with: given } = jobs.deploy.steps.at(-1)
      assert.equal(given.slug, part.slug)
      assert.deepEqual(
        Object.keys(given).filter(name => !(name in inputs)),
        [],
      )
      const required = Object.entries(inputs).flatMap(([name, { required }]) => (required ? [name] : []))
      assert.deepEqual(
        required.filter(name => !(name in given)),
        [],
      )
      assert.deepEqual([given.kind ?? 'plugin', given['install-plan']], [part.kind, files[0]?.path])
      assert.equal('plugin-secret-key' in given, part.isSigned)
      assert.equal(jobs.deploy.steps.length, files.length + 1)
    })
  }

  it('is the same as in the README for a plugin without a signature, up to the step that deploys', () => {
    const printed = parse(workflowLines({ ...SIGNED_PART, isSigned: false }, [PLAN]).join('\n'))
    const [checkout, { id, ...deploy }] = read('examples/workflows/deploy.yml').jobs.deploy.steps
    assert.ok(id)
    const { deploy: job, ...jobs } = printed.jobs
    const { steps, ...settings } = job
    const { steps: _, ...expected } = read('examples/workflows/deploy.yml').jobs.deploy
    assert.deepEqual({ ...printed, jobs }, { ...read('examples/workflows/deploy.yml'), jobs: {} })
    assert.deepEqual(settings, expected)
    assert.deepEqual(steps, [checkout, { ...deploy, with: { ...deploy.with, [PLAN.input]: PLAN.path } }])
  })

  it('is the same as in the README of the project action for a project', () => {
    const expected = read('examples/workflows/deploy-project.yml')
    const printed = parse(workflowLines(SHOP, []).join('\n'))
    const { with: given, ...step } = printed.jobs.deploy.steps[0]
    const { with: shown, ...expectedStep } = expected.jobs.deploy.steps[0]
    assert.deepEqual(Object.keys(given), Object.keys(shown))
    assert.match(given['deployment-credential'], / secrets\.PRJ_SHOPEXAMPLE01_DEPLOYMENT_CREDENTIAL /)
    const job = { ...expected.jobs.deploy, steps: [step] }
    job.concurrency.group = 'deploy-prj_ShopExample01-app-1'
    printed.jobs.deploy.steps = [step]
    assert.deepEqual(step, expectedStep)
    assert.deepEqual(printed, { ...expected, name: 'Deploy prj_ShopExample01', jobs: { deploy: job } })
  })

  it('checks out the repository only if a project needs its host config', () => {
    const [plain, withFile] = [[], [HOST]].map(files =>
      parse(workflowLines({ ...SHOP, isSigned: true }, files).join('\n')),
    )
    assert.deepEqual([plain.permissions, withFile.permissions], [{}, { contents: 'read' }])
    assert.deepEqual([plain.jobs.deploy.steps.length, withFile.jobs.deploy.steps.length], [1, 2])
    assert.ok('plugin-secret-key' in plain.jobs.deploy.steps[0].with)
    assert.equal(withFile.jobs.deploy.steps[1].with['host-config'], HOST.path)
  })

  it('gives each setting the value of a secret with its name', () => {
    const { jobs } = parse(workflowLines(SIGNED_PART, [PLAN], ['GREETER_TOKEN', 'lang']).join('\n').concat('\n'))
    const { settings } = jobs.deploy.steps.at(-1).with
    const lines = ['GREETER_TOKEN', 'lang'].map(name => `${name}=\${{ secrets.${name} }}\n`)
    assert.equal(settings, lines.join(''))
    assert.ok('settings' in inputs)
  })

  it('names the secret after the slug, in a form that GitHub allows', () => {
    const secretFor = (slug: string): string =>
      /secrets\.(\S+SIGNING_SECRET)/.exec(workflowLines({ ...SIGNED_PART, slug }, []).join('\n'))?.[1] ?? ''
    assert.deepEqual(['greeter', 'my-plugin.v2', '1e3'].map(secretFor), [
      'GREETER_SIGNING_SECRET',
      'MY_PLUGIN_V2_SIGNING_SECRET',
      '_1E3_SIGNING_SECRET',
    ])
  })
})

function read(path: string) {
  return parse(readFileSync(join(ROOT, path), 'utf8'))
}
