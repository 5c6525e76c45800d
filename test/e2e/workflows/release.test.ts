import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { parse } from 'yaml'
import { createKey } from '../../../hub/access.ts'
import { parseCommandFile, runAction } from '../../../local/runner.ts'
import { missingTools, whyLeftToCi } from '../../extent.ts'
import { openStage, SIGNING_SECRET, type Stage } from '../harness/stage.ts'
import { whyNoEngine } from './engine.ts'

const ONLY_IN_CI = whyLeftToCi()

const ROOT = join(import.meta.dirname, '../../..')
const WORKFLOW: { env: Record<string, string>; jobs: { release: { steps: Step[] } } } = parse(
  readFileSync(join(ROOT, 'examples/workflows/release.yml'), 'utf8'),
)
const PUBLISH_KEY = { name: 'release', kind: 'plugin', slug: 'greeter', can_publish: true } as const
const VERIFY = 'OWNER/hub-deploy/verify@v1'

interface Step {
  name?: string
  id?: string
  if?: string
  uses?: string
  run?: string
  with?: Record<string, string>
  env?: Record<string, string>
}

/** The values of the expressions in the workflow. */
type Values = Record<string, string>

let stage: Stage
beforeEach(async () => {
  stage = await openStage()
  makeRepository(stage.workspace.path)
  // A stand-in for GitHub's own program, which records its arguments.
  const program = join(stage.folder, 'bin/gh')
  mkdirSync(join(stage.folder, 'bin'))
  writeFileSync(program, `#!/bin/sh\nprintf '%s\\n' "$@" > '${join(stage.folder, 'released')}'\n`, { mode: 0o755 })
})
afterEach(() => stage.close())

const skip = whyNoEngine() === false ? 'the workflow engine executes it' : missingTools('git', 'python3')

/** Runs the commands of the workflow's steps without an engine, in the shell that a runner uses. */
describe('examples/workflows/release.yml', { skip }, () => {
  it('publishes and releases exactly the bytes that it built, even when it runs again', {
    skip: ONLY_IN_CI,
  }, async () => {
    assert.equal((await release()).failed, undefined)
    const { failed, values } = await release()
    assert.equal(failed, undefined)
    const sha256 = values['steps.served.outputs.artifact-sha256'] ?? ''
    assert.equal(sha256, values['steps.built.outputs.artifact-sha256'])
    assert.deepEqual(readReleased()?.slice(0, 5), ['release', 'create', 'v1.0.0', 'greeter.zip', '--verify-tag'])
    assert.ok(readReleased()?.at(-1)?.endsWith(sha256))
    const deployed = await stage.deploy({ 'install-plan': 'deploy/install.yaml', 'artifact-sha256': sha256 })
    assert.deepEqual([deployed.exitCode, deployed.outputs['version']], [0, '1.0.0'], deployed.log)
  })

  it('publishes nothing if plugin.yaml names a version other than the tag', { skip: ONLY_IN_CI }, async () => {
    assert.equal((await release('v1.0.1')).failed, 'Check what was built')
    assert.equal((await fetch(`${stage.hub.url}/plugins/greeter`)).status, 404)
    assert.equal(readReleased(), undefined)
  })

  it('releases nothing if the hub serves bytes other than those that it was given', {
    skip: ONLY_IN_CI,
  }, async () => {
    await stage.publish('1.0.0', { 'plugin.yaml': 'version: "1.0.0"\n', 'src/main.py': 'other' })
    const skipping = new Set(['Publish'])
    assert.equal((await release('v1.0.0', skipping)).failed, 'Check what the hub serves')
    assert.equal(readReleased(), undefined)
  })
})

/** Runs the steps of the workflow until one fails, as a runner would after a push of this tag. */
async function release(tag = 'v1.0.0', skipping: ReadonlySet<string> = new Set()) {
  const values: Values = {
    'github.token': 'token',
    'secrets.HUB_API_KEY': stage.apiKey,
    'secrets.GREETER_PUBLISH_KEY': createKey(stage.store, PUBLISH_KEY).key,
    'secrets.GREETER_SIGNING_SECRET': SIGNING_SECRET,
  }
  for (const step of WORKFLOW.jobs.release.steps) {
    const { name = '', uses, run } = step
    if (skipping.has(name) || (run === undefined && uses !== VERIFY)) continue
    if (step.if !== undefined) assert.equal(values[step.if.replace(" == 'true'", '')], 'true')
    const { isDone, outputs } = await (run === undefined ? check(step, values) : execute(step, { values, tag }))
    for (const [output, value] of Object.entries(outputs)) values[`steps.${step.id}.outputs.${output}`] = value
    if (!isDone) return { failed: name, values }
  }
  return { failed: undefined, values }
}

interface StepResult {
  isDone: boolean
  outputs: Record<string, string>
}

async function check({ with: given = {} }: Step, values: Values): Promise<StepResult> {
  const inputs = evaluate(given, values)
  const hub = 'hub-url' in inputs ? { 'hub-url': stage.hub.url } : {}
  const { workspace } = stage
  const { exitCode, outputs } = await runAction({ action: 'verify', workspace, inputs: { ...inputs, ...hub } })
  return { isDone: exitCode === 0, outputs }
}

/** The hub runs in this process, so a step must not block it. */
async function execute(
  { run = '', env = {} }: Step,
  { values, tag }: { values: Values; tag: string },
): Promise<StepResult> {
  const output = join(mkdtempSync(join(stage.folder, 'step-')), 'output')
  writeFileSync(output, '')
  const here = run.replaceAll('https://hub.example.com', stage.hub.url)
  const step = spawn('bash', ['--noprofile', '--norc', '-eo', 'pipefail', '-c', here], {
    cwd: stage.workspace.path,
    env: {
      PATH: [join(stage.folder, 'bin'), process.env['PATH']].join(delimiter),
      HOME: stage.folder,
      GITHUB_OUTPUT: output,
      GITHUB_REF_NAME: tag,
      GITHUB_REPOSITORY: 'example/greeter',
      GITHUB_WORKSPACE: stage.workspace.path,
      ...WORKFLOW.env,
      HUB_DEPLOY: ROOT,
      ...evaluate(env, values),
    },
    stdio: 'ignore',
  })
  const [status] = await once(step, 'exit')
  return { isDone: status === 0, outputs: readOutputs(readFileSync(output, 'utf8')) }
}

/** The outputs that a step has written for the runner, as `name=value` or between delimiters. */
function readOutputs(text: string): Record<string, string> {
  const lines = [...text.matchAll(/^([\w-]+)=(.*)$/gm)]
  return { ...parseCommandFile(text), ...Object.fromEntries(lines.map(([, name = '', value = '']) => [name, value])) }
}

function evaluate(texts: Record<string, string>, values: Values): Record<string, string> {
  const evaluated = (text: string): string => text.replace(/\$\{\{ (.+?) \}\}/g, (_, name) => values[name] ?? '')
  return Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, evaluated(text)]))
}

/** The publisher's repository: the example's plugin, and its plan. */
function makeRepository(path: string): void {
  cpSync(join(ROOT, 'examples/plugin'), join(path, 'plugin'), { recursive: true })
  mkdirSync(join(path, 'deploy'))
  cpSync(join(ROOT, 'examples/install.yaml'), join(path, 'deploy/install.yaml'))
  const git = (...args: string[]): void => void execFileSync('git', ['-C', path, ...args], { stdio: 'ignore' })
  git('init')
  git('add', '.')
  git('-c', 'user.name=publisher', '-c', 'user.email=publisher@example.com', 'commit', '-m', 'first')
}

/** The arguments with which `gh` was called; undefined if it was not called. */
function readReleased(): string[] | undefined {
  const path = join(stage.folder, 'released')
  return existsSync(path) ? readFileSync(path, 'utf8').trimEnd().split('\n') : undefined
}
