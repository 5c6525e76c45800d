import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { type Block, blocksOf, ROOT, readPage } from './doc-pages.ts'
import { whyLeftToCi } from './extent.ts'
import { freePort } from './net/loopback-server.ts'

const ONLY_IN_CI = whyLeftToCi()

/** A minimal environment, so that the user's npm settings have no effect. */
const ENV = { PATH: process.env['PATH'], HOME: process.env['HOME'] }

/** The sections whose commands are executed below, except for the commands in the next list. */
const EXECUTED = [
  'README.md: Try it',
  'docs/hub.md: Run it',
  'docs/hub.md: Deploy from it',
  'docs/projects.md: Try it',
  'docs/operating.md: After a power cut',
  'fleet/README.md: Deploying to the hosts that are behind',
]

/** Commands that no test executes, by their first line, with the reason. */
const NOT_EXECUTED: Readonly<Record<string, string>> = {
  'npm ci && npm run demo': 'it replaces the modules that this test runs with; test/scripts/demo.test.ts runs the demo',
  'npm ci && npm test': 'it runs this test; .ci/run takes this line from README.md',
  'npm run init -- --slug greeter --hub-url https://hub.example.com --host app-1=/srv/app --out ../operations':
    'it writes outside this checkout; test/scripts/init.test.ts runs it',
  'sudo useradd --create-home runner': 'it adds a user to this machine',
  'npm run hub -- --host 0.0.0.0 --port 8443 --tls-cert cert.pem --tls-key key.pem':
    'it serves the whole network; test/hub/http/tls.test.ts starts a hub with a certificate',
  './config.sh --url https://github.com/OWNER/REPOSITORY --token TOKEN --labels app-1 # as runner':
    'it needs an account on GitHub',
}

describe('the commands in the pages', () => {
  const shown = blocksOf().filter(({ language }) => language === 'sh')

  it('are executed by a test, or have a reason why not', () => {
    const open = shown.filter(
      block => !EXECUTED.includes(sectionOf(block)) && !Object.hasOwn(NOT_EXECUTED, firstLine(block)),
    )
    assert.deepEqual(open.map(sectionOf), [])
  })

  it('are still in the pages', () => {
    const [sections, lines] = [shown.map(sectionOf), shown.map(firstLine)]
    assert.deepEqual(
      EXECUTED.filter(section => !sections.includes(section)),
      [],
    )
    assert.deepEqual(
      Object.keys(NOT_EXECUTED).filter(line => !lines.includes(line)),
      [],
    )
  })
})

describe('README.md', () => {
  it('shows, each on one line, the commands that run the demo and the tests on a fresh machine', () => {
    const lines = readPage('README.md').split('\n')
    for (const command of ['npm ci && npm run demo', 'npm ci && npm test']) assert.ok(lines.includes(command), command)
    assert.match(readPage('.ci/run'), /grep -m 1 -x 'npm ci && npm test' README\.md/)
  })

  it('shows a command that tries a plugin on this machine', () => {
    const printed = run('sh', commandsOf('README.md: Try it').join(''))
    assert.match(printed, /outcome +success/)
    assert.match(printed, /plugin\.yaml/)
  })
})

describe('docs/projects.md', () => {
  it('shows commands that try a project with the reference hub on this machine, and revoke all keys', {
    skip: ONLY_IN_CI,
  }, async t => {
    const { folder, page } = await follow(t, 'docs/projects.md: Try it')
    for (const path of ['plugins/cart', 'plugins/till', 'extensions/mailer']) {
      assert.ok(existsSync(join(folder, 'try-host', path)), path)
    }
    assert.match(page, /prj_ShopExample01/)
    const data = ['--data', join(folder, 'try-hub')]
    const keys = spawnSync(process.execPath, ['hub/cli.ts', 'project', 'keys', ...data], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    assert.match(keys.stdout, / revoked /)
    assert.doesNotMatch(keys.stdout, / active /)
  })
})

describe('docs/hub.md', () => {
  it('shows commands that publish, create a key, back up, restore, and deploy without a runner', async t => {
    const { folder, page } = await follow(t, 'docs/hub.md: Run it', 'docs/hub.md: Deploy from it')
    assert.match(page, /greeter[\s\S]*class="version">1\.0\.0</)
    for (const path of ['try-backup.tar', 'try-restored/hub.sqlite', 'try-host/plugins/greeter/plugin.yaml'])
      assert.ok(existsSync(join(folder, path)), path)
  })
})

describe('docs/operating.md', () => {
  it('shows commands that install the program that recovers a host', t => {
    const folder = makeFolder(t)
    const node = join(folder, 'node24/bin/node')
    mkdirSync(dirname(node), { recursive: true })
    symlinkSync(process.execPath, node)
    const [commands = '', byHand = ''] = commandsOf('docs/operating.md: After a power cut')
    const here = commands
      .replaceAll('ACTION', ROOT)
      .replaceAll('NODE', join(folder, 'node24'))
      .replaceAll('/opt', folder)
    run('sh', here)
    mkdirSync(join(folder, 'root/.hub-deploy'), { mode: 0o700, recursive: true })
    chmodSync(join(folder, 'root'), 0o755)
    const sudo = 'sudo() { [ "$1 $2" = "-u $(id -un)" ] && shift 2 && "$@"; }'
    run('sh', `${sudo}\n${byHand.replaceAll('/opt', folder).replaceAll('/srv/app', `${folder}/root`)}`)
  })
})

describe('fleet/README.md', () => {
  it('shows how to divide hosts into batches', t => {
    if (spawnSync('jq', ['--version']).error !== undefined) return t.skip('jq is not on PATH')
    const [commands = ''] = commandsOf('fleet/README.md: Deploying to the hosts that are behind')
    const hosts = Array.from({ length: 600 }, (_, index) => `app-${index}`)
    const batches = JSON.parse(run('bash', commands, { OUTDATED: JSON.stringify(hosts) }))
    assert.deepEqual(batches.flat(), hosts)
    assert.deepEqual(
      batches.map((batch: string[]) => batch.length),
      [256, 256, 88],
    )
  })
})

/** Runs the commands of sections: the first block starts the hub, and the others run in sequence in one shell. */
async function follow(t: TestContext, ...sections: string[]): Promise<{ folder: string; page: string }> {
  const folder = makeFolder(t)
  const port = await freePort()
  const [serve = '', ...others] = sections
    .flatMap(commandsOf)
    .map(text => text.replaceAll('/tmp/try', `${folder}/try`).replaceAll('8787', String(port)))
  await startHub(t, serve)
  run('sh', others.join(''))
  return { folder, page: await (await fetch(`http://127.0.0.1:${port}/`)).text() }
}

/** The output of the commands, which stop at the first one that fails. */
function run(shell: string, commands: string, env: Readonly<Record<string, string>> = {}): string {
  const { status, stdout, stderr } = spawnSync(shell, ['-euc', commands], {
    cwd: ROOT,
    env: { ...ENV, ...env },
    encoding: 'utf8',
  })
  assert.equal(status, 0, `${stdout}${stderr}`)
  return stdout
}

function commandsOf(section: string): string[] {
  const blocks = blocksOf().filter(block => block.language === 'sh' && sectionOf(block) === section)
  return blocks.filter(block => !Object.hasOwn(NOT_EXECUTED, firstLine(block))).map(({ text }) => text)
}

function sectionOf({ page, section }: Block): string {
  return `${page}: ${section}`
}

function firstLine({ text }: Block): string {
  return text.split('\n', 1)[0] ?? ''
}

function makeFolder(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'readme-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** Starts the hub in its own process group, so that one signal reaches the shell, npm and the hub. */
async function startHub(t: TestContext, command: string): Promise<void> {
  const hub = spawn('sh', ['-c', command], {
    cwd: ROOT,
    env: ENV,
    detached: true,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const closed = once(hub, 'close')
  t.after(async () => {
    process.kill(-(hub.pid as number), 'SIGTERM')
    await closed
  })
  for await (const text of hub.stdout.setEncoding('utf8')) if (text.includes('listens on')) return
  throw new Error(`The hub ended before it listened: ${command}`)
}
