import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parse } from 'yaml'
import { openStage, SIGNING_SECRET, writeFiles } from '../e2e/harness/stage.ts'
import { outline, whyNoEngine } from '../e2e/workflows/engine.ts'
import { assertNoneIn, type FleetStage, openFleetStage } from '../e2e/workflows/fleet-stage.ts'
import { sampled } from '../extent.ts'
import { temporaryDirectory } from '../folders.ts'
import { makeStandIns } from '../install/services/stand-ins.ts'

const ROOT = join(import.meta.dirname, '../..')
const HUB_URL = 'https://hub.example.com'
const SERVICE = ['--slug', 'clock', '--kind', 'service', '--hub-url', HUB_URL]
const HOSTS = ['--host', 'app-1=/srv/app', '--host', 'app-2=/srv/other']
const PATHS = [
  '.github/actionlint.yaml',
  '.github/workflows/deploy-clock.yml',
  'hosts/app-1.yaml',
  'hosts/app-2.yaml',
  'plans/clock.yaml',
]

describe('npm run init', () => {
  it('writes the workflow, the plan and the config of each host, and prints the commands for each host', t => {
    const { out, stdout } = succeeds(t, [...SERVICE, ...HOSTS])
    assert.deepEqual(filesIn(out), PATHS)
    const { strategy, steps } = read(out, '.github/workflows/deploy-clock.yml').jobs.deploy
    assert.deepEqual(strategy.matrix.include, [
      { host: 'app-1', root: '/srv/app' },
      { host: 'app-2', root: '/srv/other' },
    ])
    assert.match(steps.at(-1).uses, /^example\/hub-deploy@[0-9a-f]{40}$/)
    assert.ok(!/OWNER|greeter/.test(stdout + PATHS.map(path => readFileSync(join(out, path), 'utf8')).join()))
    for (const [name, root] of [
      ['app-1', '/srv/app'],
      ['app-2', '/srv/other'],
    ]) {
      assert.ok(stdout.includes(`install -d -o runner -g runner -m 755 ${root}\n`), stdout)
      assert.ok(stdout.includes(`--labels ${name} `))
      assert.ok(stdout.includes(`ExecStart=${root}/extensions/clock/run.sh\n`))
    }
    assert.match(stdout, /--url https:\/\/github\.com\/example\/hub-deploy --token/)
  })

  it('prints the polkit rule of the security page for the unit of the service', t => {
    const { stdout } = succeeds(t, [...SERVICE, ...HOSTS])
    const rule = /^polkit\.addRule\([\s\S]*?^\}\)$/m.exec(stdout)?.[0] ?? assert.fail(stdout)
    const page = readFileSync(join(ROOT, 'docs/security.md'), 'utf8')
    assert.ok(rule.includes("['clock.service']"))
    assert.ok(page.includes(rule.replace('clock.service', 'greeter.service')))
  })

  it('writes files that verify accepts, without a hub', async t => {
    const stage = await openStage()
    t.after(() => stage.close())
    for (const kind of ['plugin', 'service']) {
      const out = join(stage.folder, kind)
      init(t, ['--slug', 'clock', '--kind', kind, '--hub-url', HUB_URL, ...HOSTS, '--out', out])
      const files = Object.fromEntries(
        ['plans/clock.yaml', 'hosts/app-1.yaml', 'hosts/app-2.yaml'].map(path => [
          path,
          readFileSync(join(out, path), 'utf8'),
        ]),
      )
      writeFiles(stage.workspace.path, files)
      const { exitCode, log } = await stage.verify({
        ...{ 'hub-url': '', 'api-key': '', 'signing-secret': '' },
        ...{
          slug: 'clock',
          kind,
          'install-plan': 'plans/clock.yaml',
          'host-config': 'hosts/app-1.yaml\nhosts/app-2.yaml',
        },
      })
      assert.equal(exitCode, 0, log)
    }
  })

  for (const hosts of sampled([HOSTS.slice(0, 2), HOSTS], 1))
    it(`writes a workflow for ${hosts.length / 2} of the hosts that passes actionlint`, t => {
      const { out } = succeeds(t, [...SERVICE, ...hosts])
      execFileSync('git', ['init', '-q', out])
      const { error, status, stdout } = spawnSync('actionlint', [], { cwd: out, encoding: 'utf8' })
      if (error !== undefined) return t.skip('actionlint is not on PATH')
      assert.equal(status, 0, stdout)
    })

  it('overwrites nothing: it keeps the config of a host that has one, and refuses another workflow of the slug', t => {
    const { out } = succeeds(t, [...SERVICE, ...HOSTS])
    const own = join(out, 'hosts/app-1.yaml')
    writeFileSync(own, 'version: 1\nsupervisor: none\n')
    const more = ['--slug', 'mailer', '--kind', 'service', '--hub-url', HUB_URL, ...HOSTS, '--out', out]
    const { status, stdout } = init(t, more)
    assert.equal(status, 0)
    assert.equal(readFileSync(own, 'utf8'), 'version: 1\nsupervisor: none\n')
    assert.match(stdout, /hosts\/app-1\.yaml: kept as it is[\s\S]*unit: "mailer\.service"/)
    assert.equal(init(t, more).status, 0)
    const before = filesIn(out).map(path => readFileSync(join(out, path), 'utf8'))
    const elsewhere = init(t, [...SERVICE, '--host', 'app-3=/srv/app', '--out', out])
    assert.equal(elsewhere.status, 2)
    assert.match(elsewhere.stderr, /^Nothing was written, .*deploy-clock\.yml/)
    assert.deepEqual(
      filesIn(out).map(path => readFileSync(join(out, path), 'utf8')),
      before,
    )
  })

  const REFUSED: readonly (readonly [string, readonly string[], RegExp])[] = [
    ['no slug', HOSTS, /--slug/],
    ['no host', SERVICE, /--host/],
    ['a host without a root', [...SERVICE, '--host', 'app-1'], /NAME=ROOT/],
    ['a relative root', [...SERVICE, '--host', 'app-1=srv'], /NAME=ROOT/],
    ['a root with ..', [...SERVICE, '--host', 'app-1=/srv/../etc'], /NAME=ROOT/],
    ['a root that a shell would change', [...SERVICE, '--host', 'app-1=/srv/$(id)'], /NAME=ROOT/],
    ['a name that is a path', [...SERVICE, '--host', '../app=/srv/app'], /NAME=ROOT/],
    ['a host twice', [...SERVICE, ...HOSTS, '--host', 'app-1=/srv/third'], /app-1 twice/],
    ['plain http', [...SERVICE, ...HOSTS, '--hub-url', 'http://hub.example.com'], /https/],
    [
      'a URL that breaks the workflow',
      [...SERVICE, ...HOSTS, '--hub-url', 'https://hub.example.com\nrun: x'],
      /--hub-url/,
    ],
    ['a project', ['--slug', 'clock', '--hub-url', HUB_URL, '--kind', 'project', ...HOSTS], /plugin or service/],
  ]
  for (const [what, args, message] of sampled(REFUSED, 3))
    it(`refuses ${what}, and writes nothing`, t => {
      const out = join(temporaryDirectory(t), 'out')
      const { status, stderr } = init(t, [...args, '--out', out])
      assert.deepEqual([status, existsSync(out)], [2, false], stderr)
      assert.match(stderr, message)
    })

  it('refuses a checkout that no workflow can name', t => {
    const out = join(temporaryDirectory(t), 'out')
    const { status, stderr } = init(
      t,
      [...SERVICE, ...HOSTS, '--out', out],
      repository(t, 'https://git.example.com/a/b'),
    )
    assert.deepEqual([status, existsSync(out)], [2, false])
    assert.match(stderr, /not on GitHub/)
  })
})

describe('what npm run init writes', { skip: whyNoEngine() }, () => {
  it('deploys an own service to each host, and restarts it', async t => {
    const fleet = await openFleet(t)
    const standIns = makeStandIns()
    t.after(() => standIns.close())
    await fleet.publish('1.0.0', { 'run.sh': '#!/bin/sh\nexec sleep infinity\n' }, { kind: 'service', slug: 'clock' })
    const hosts = ['app-1', 'app-2'].flatMap(name => ['--host', `${name}=${join(fleet.folder, 'hosts', name)}`])
    const url = fleet.hub.url
    const { status, stderr } = init(t, [...SERVICE, '--hub-url', url, ...hosts, '--out', fleet.repository])
    assert.equal(status, 0, stderr)
    const workflow = readFileSync(join(fleet.repository, '.github/workflows/deploy-clock.yml'), 'utf8')
    const result = await fleet.run(workflow.replace(/example\/hub-deploy@[0-9a-f]{40}/, 'OWNER/hub-deploy@v1'), {
      secrets: { HUB_API_KEY: fleet.apiKey, CLOCK_SIGNING_SECRET: SIGNING_SECRET },
      payload: { inputs: { version: 'latest' } },
      path: standIns.path,
    })
    assert.deepEqual(outline(result), ['deploy (app-1): success', 'deploy (app-2): success'], result.log)
    assert.deepEqual(fleet.versions(), ['1.0.0', '1.0.0'])
    assert.equal(standIns.stateOf('clock.service'), 'active')
    assertNoneIn(result, [fleet.apiKey, SIGNING_SECRET])
  })
})

async function openFleet(t: TestContext): Promise<FleetStage> {
  const fleet = await openFleetStage()
  t.after(() => fleet.close())
  return fleet
}

function succeeds(t: TestContext, args: readonly string[]): { readonly out: string; readonly stdout: string } {
  const out = temporaryDirectory(t)
  const { status, stdout, stderr } = init(t, [...args, '--out', out])
  assert.equal(status, 0, stderr)
  return { out, stdout }
}

/** Runs the program as from a clone of a repository on GitHub. */
function init(
  t: TestContext,
  args: readonly string[],
  gitDir = repository(t, 'git@github.com:example/hub-deploy.git'),
) {
  const env = { ...process.env, GIT_DIR: gitDir }
  return spawnSync(process.execPath, [join(ROOT, 'scripts/init.ts'), ...args], { env, encoding: 'utf8' })
}

/** Creates a repository with a remote and a commit, the same each time. */
function repository(t: TestContext, remote: string): string {
  const folder = temporaryDirectory(t)
  const date = '2026-01-01T00:00:00Z'
  const env = { ...process.env, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date }
  const author = ['-c', 'user.name=a', '-c', 'user.email=a@b']
  const git = (...args: string[]) => execFileSync('git', ['-C', folder, ...author, ...args], { env })
  git('init', '-q')
  git('commit', '-q', '--allow-empty', '-m', 'first')
  git('remote', 'add', 'origin', remote)
  return join(folder, '.git')
}

function filesIn(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile())
  return entries.map(entry => join(entry.parentPath, entry.name).slice(folder.length + 1)).sort()
}

function read(folder: string, path: string) {
  return parse(readFileSync(join(folder, path), 'utf8'))
}
