import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { runInNewContext } from 'node:vm'
import { parse } from 'yaml'
import { parsePluginYaml } from '../src/core/content/plugin-yaml.ts'
import { parseHostConfig } from '../src/core/plan/host-config.ts'
import { parsePlan } from '../src/core/plan/plan.ts'
import { buildPluginSig } from '../src/install/steps/plugin-sig.ts'
import { type Block, blocksOf, PAGES, ROOT, readPage, withoutBlocks } from './doc-pages.ts'

/** `sh` is for readme-commands.test.ts, and `text` is for people. */
const LANGUAGES = ['sh', 'yaml', 'json', 'js', 'text']

type Mapping = Record<string, unknown>

/** Example files that a page may show in full. Other tests run them. */
const EXAMPLES = readdirSync(join(ROOT, 'examples'), { recursive: true, encoding: 'utf8' })
  .filter(name => /\.ya?ml$/.test(name))
  .map(name => `examples/${name}`)

describe('the code blocks in the pages', () => {
  it('contain commands only where a test can find them', () => {
    const texts = blocksOf().filter(({ language }) => language === 'text')
    assert.deepEqual(
      texts.filter(({ text }) => /^(?:\$ |(?:npm|npx|node|sudo|curl|systemctl|git|export) )/m.test(text)).map(placeOf),
      [],
    )
  })

  it('are fenced, in a language that a test knows', () => {
    assert.deepEqual(
      blocksOf()
        .filter(({ language }) => !LANGUAGES.includes(language))
        .map(placeOf),
      [],
    )
    assert.deepEqual(
      PAGES.filter(page => /^(?:#.*|[^\s-].*)?\n\n(?: {4}|\t)\S/m.test(withoutBlocks(page))),
      [],
    )
  })
})

for (const block of blocksOf().filter(({ language }) => language === 'yaml')) {
  describe(`the YAML at ${placeOf(block)}`, () => {
    const { what, check } = checkOf(block.text)
    it(`is ${what}`, check)
  })
}

describe('the JSON in the pages', () => {
  const CHECKS: Readonly<Record<string, (text: string) => void | Promise<void>>> = {
    'docs/files.md': isPluginSig,
    // examples.test.ts compares the whole manifest with that of the sealed example.
    'docs/projects.md': text => assert.ok('content_sha256' in JSON.parse(text)),
  }
  for (const { page, text } of blocksOf().filter(({ language }) => language === 'json')) {
    it(`is what the program writes: ${page}`, async () => await (CHECKS[page] ?? assert.fail)(text))
  }
})

describe('the polkit rule of docs/security.md', () => {
  const [rule] = blocksOf('docs/security.md').filter(({ language }) => language === 'js')
  const manage = 'org.freedesktop.systemd1.manage-units'

  it('lets the runner manage exactly this unit', () => {
    const allows = loadPolkitRule(rule?.text ?? '')
    assert.equal(allows(manage, { unit: 'greeter.service', verb: 'restart' }, 'runner'), 'yes')
    assert.equal(allows(manage, { unit: 'sshd.service', verb: 'restart' }, 'runner'), undefined)
    assert.equal(allows(manage, { unit: 'greeter.service', verb: 'restart' }, 'nobody'), undefined)
    const reboot = 'org.freedesktop.login1.reboot'
    assert.equal(allows(reboot, { unit: 'greeter.service', verb: 'restart' }, 'runner'), undefined)
  })

  it('allows only the verbs of this product, not those that change what a unit may do', () => {
    const allows = loadPolkitRule(rule?.text ?? '')
    const verbs = ['start', 'stop', 'restart', 'reset-failed', 'bind', 'set-property', 'kill', 'mount-image', 'freeze']
    const granted = [...verbs, undefined].filter(
      verb => allows(manage, { unit: 'greeter.service', verb }, 'runner') === 'yes',
    )
    assert.deepEqual(granted, ['start', 'stop', 'restart', 'reset-failed'])
    const transient = { 'polkit.message': "Authentication is required to start transient unit '$(unit)'." }
    assert.equal(allows(manage, { unit: 'greeter.service', verb: 'start', ...transient }, 'runner'), undefined)
  })

  it('is the only JavaScript in the pages', () => {
    const pages = blocksOf()
      .filter(({ language }) => language === 'js')
      .map(({ page }) => page)
    assert.deepEqual(pages, ['docs/security.md'])
  })
})

/**
 * Plans and host configs go through the real parsers. A workflow, or a part of one, is linted, and its inputs must
 * exist.
 */
function checkOf(text: string): { what: string; check: () => void | Promise<void> } {
  const example = EXAMPLES.find(path => readPage(path) === text)
  if (example !== undefined) return { what: example, check: () => {} }
  const value: unknown = parse(text)
  if (Array.isArray(value)) {
    return 'action' in value[0]
      ? { what: 'the steps of a plan', check: () => void parsePlan(planOf(text), 'the page') }
      : { what: 'the steps of a job', check: () => checkWorkflow({ jobs: jobOf({ steps: value }) }) }
  }
  const keys = Object.keys(value as Mapping)
  const isSubset = (of: readonly string[]) => keys.every(key => of.includes(key))
  if (keys.includes('format_version')) return { what: 'a plan', check: () => void parsePlan(text, 'the page') }
  if (keys.includes('version')) return { what: 'a host config', check: () => void parseHostConfig(text, 'the page') }
  if (isSubset(['systemd', 'docker', 'kubernetes'])) {
    const check = () => keys.forEach(key => void parseHostConfig(`version: 1\nsupervisor: ${key}\n${text}`, 'the page'))
    return { what: 'a part of a host config', check }
  }
  if (isSubset(['name', 'on', 'permissions', 'jobs'])) {
    return { what: 'a workflow', check: () => checkWorkflow(value as Mapping) }
  }
  if (keys.includes('runs-on')) return { what: 'a job', check: () => checkWorkflow({ jobs: jobOf(value as Mapping) }) }
  const step = { uses: 'OWNER/hub-deploy@v1', with: value }
  return { what: 'inputs of the deploy action', check: () => checkWorkflow({ jobs: jobOf({ steps: [step] }) }) }
}

function planOf(steps: string): string {
  return `format_version: "1"\nproject_id: example\nversion: 1.0.0\nsteps:\n${steps.replace(/^(?! )/gm, '  ')}`
}

/** Completes a job with the parts that the page leaves out. The page's steps may use the outputs of a step `deploy`. */
function jobOf(given: Mapping): Mapping {
  const steps = (given['steps'] ?? [{ run: 'true' }]) as Mapping[]
  const deploy = { id: 'deploy', uses: 'OWNER/hub-deploy@v1' }
  const all = steps.some(step => step['id'] === 'deploy') ? steps : [deploy, ...steps]
  return { job: { 'runs-on': 'ubuntu-latest', ...given, steps: all } }
}

interface Step {
  readonly uses?: string
  readonly with?: Mapping
}

function checkWorkflow(given: Mapping): void {
  const workflow = { name: 'A page', on: withInputs(given['on']), jobs: jobOf({}), ...omit(given, 'on') }
  const jobs = Object.values(workflow.jobs) as { uses?: string; with?: Mapping; secrets?: Mapping; steps?: Step[] }[]
  for (const step of jobs.flatMap(job => [job, ...(job.steps ?? [])])) checkInputs(step)
  lint(workflow)
}

/** Adds a trigger with the inputs that the expressions in the pages name. */
function withInputs(on: unknown): Mapping {
  const inputs = { version: { type: 'string' } }
  return { ...(on as Mapping | undefined), workflow_dispatch: { inputs } }
}

function omit(mapping: Mapping, key: string): Mapping {
  return Object.fromEntries(Object.entries(mapping).filter(([name]) => name !== key))
}

function checkInputs({ uses = '', with: given = {} }: Step): void {
  const [, path] = /^OWNER\/hub-deploy\/?(.*)@v1$/.exec(uses) ?? []
  if (path === undefined) return
  const definition = parse(readPage(path.endsWith('.yml') ? path : join(path, 'action.yml')))
  const { inputs } = definition.on?.workflow_call ?? definition
  assert.deepEqual(
    Object.keys(given).filter(name => !Object.hasOwn(inputs, name)),
    [],
  )
}

/** Checks nothing if actionlint is not on PATH; `.ci/run` installs it. */
function lint(workflow: Mapping): void {
  const args = ['-ignore', 'label ".+" is unknown', '-']
  const { error, status, stdout } = spawnSync('actionlint', args, { input: JSON.stringify(workflow), encoding: 'utf8' })
  if (error === undefined) assert.equal(status, 0, stdout)
}

async function isPluginSig(shown: string): Promise<void> {
  const staged = mkdtempSync(join(tmpdir(), 'shown-sig-'))
  try {
    const text = 'name: greeter\nversion: 1.0.0\nexecution_mode: trusted\n'
    mkdirSync(join(staged, 'src'))
    writeFileSync(join(staged, 'plugin.yaml'), text)
    const made = await buildPluginSig({ id: 'greeter', staged, pluginYaml: parsePluginYaml(text) }, 'secret')
    assert.equal(made.replace(/[0-9a-f]{64}/, '<64 hex digits>'), shown.trimEnd())
  } finally {
    rmSync(staged, { recursive: true })
  }
}

interface Details {
  readonly unit: string
  readonly verb: string | undefined
  readonly 'polkit.message'?: string
}
type Decide = (id: string, details: Details, user: string) => string | undefined

/** Loads the rule as polkit does, with the objects that polkit offers to rules. */
function loadPolkitRule(text: string): Decide {
  const rules: ((action: object, subject: object) => string | undefined)[] = []
  const polkit = { addRule: (rule: (typeof rules)[0]) => rules.push(rule), Result: { YES: 'yes' } }
  runInNewContext(text, { polkit })
  assert.equal(rules.length, 1)
  const find = (details: object) => (key: string) => new Map(Object.entries(details)).get(key)
  return (id, details, user) => rules[0]?.({ id, lookup: find(details) }, { user })
}

function placeOf({ page, line }: Block): string {
  return `${page}:${line}`
}
