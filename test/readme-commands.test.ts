import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { whyLeftToCi } from './extent.ts'

const ONLY_IN_CI = whyLeftToCi()

const ROOT = join(import.meta.dirname, '..')
/** A minimal environment, so that npm settings of the user do not matter. */
const ENV = { PATH: process.env['PATH'], HOME: process.env['HOME'] }

describe('the README', () => {
  it('shows commands that try a plugin with the reference hub on this machine', async t => {
    const { folder, page } = await follow(t, 'README.md', '### Try it with your own plugin')
    assert.match(readFileSync(join(folder, 'try-host/plugins/greeter/plugin.yaml'), 'utf8'), /name: greeter/)
    assert.match(page, /greeter/)
  })
})

describe('the README of projects', () => {
  it('shows commands that try a project with the reference hub on this machine, and revoke it', {
    skip: ONLY_IN_CI,
  }, async t => {
    const { folder, page } = await follow(t, 'project/README.md', '## Try it')
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

/** Runs the commands of a section: the first block starts the hub, the others run in sequence. */
async function follow(t: TestContext, readme: string, section: string): Promise<{ folder: string; page: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'readme-'))
  t.after(() => rmSync(folder, { recursive: true, force: true }))
  const port = await freePort()
  const [serve = '', ...others] = readCommands(readme, section).map(text =>
    text.replaceAll('/tmp/try', `${folder}/try`).replaceAll('8787', port),
  )
  await startHub(t, serve)
  const { status, stdout, stderr } = spawnSync('sh', ['-euc', others.join('')], {
    cwd: ROOT,
    env: ENV,
    encoding: 'utf8',
  })
  assert.equal(status, 0, `${stdout}${stderr}`)
  return { folder, page: await (await fetch(`http://127.0.0.1:${port}/`)).text() }
}

/** The fenced commands of the section. */
function readCommands(readme: string, section: string): string[] {
  const text = readFileSync(join(ROOT, readme), 'utf8').split(`${section}\n`)[1]?.split('\n## ')[0] ?? ''
  return [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, commands]) => commands as string)
}

/** Runs in a process group of its own, because npm does not forward signals to its children. */
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
  throw new Error('The hub of the README did not start.')
}

async function freePort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  return String(port)
}
