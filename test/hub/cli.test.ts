import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { type AddressInfo, createServer } from 'node:net'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { describe, it, type TestContext } from 'node:test'
import { readListing } from '../../hub/marketplace/catalogue.ts'
import { signArchive } from '../../hub/marketplace/publish.ts'
import { openStore } from '../../hub/store.ts'
import { buildZip, file } from '../archives/zip-builder.ts'
import { COMPILE_CACHE } from '../compile-cache.ts'
import { sampled } from '../extent.ts'
import { CLI, hub, hubProcess } from './run-cli.ts'
import { newFolder, SIGNING_SECRET } from './running-hub.ts'

const HELLO = ['--kind', 'plugin', '--slug', 'hello', '--version', '1.0.0']
const SECRET = ['--signing-secret-env', 'HUB_TEST_SECRET']

describe('the command line', { concurrency: 3 }, () => {
  it('publishes, lists, replaces, holds back, releases and yanks', async t => {
    const data = ['--data', join(newFolder(t), 'data')]
    const publish = ['publish', ...HELLO, ...SECRET, ...data, '--from']
    assert.equal((await hub(...publish, newFolder(t, { 'plugin.yaml': 'name: a' }))).code, 0)
    assert.match((await hub('versions', ...data)).stdout, /plugin +hello +1\.0\.0 +served/)
    const changed = newFolder(t, { 'plugin.yaml': 'name: b' })
    assert.equal((await hub(...publish, changed)).code, 1)
    const replaced = await hub(...publish, changed, '--replace')
    assert.equal(replaced.code, 0)
    assert.doesNotMatch(replaced.stderr, /held back/)
    assert.equal((await hub('hold', ...HELLO, ...data)).code, 0)
    const whileHeld = await hub(...publish, newFolder(t, { 'plugin.yaml': 'name: c' }), '--replace')
    assert.equal(whileHeld.code, 0)
    assert.match(whileHeld.stderr, /^Note: this version is held back .*$/m)
    assert.match((await hub('versions', ...data)).stdout, /plugin +hello +1\.0\.0 +held back/)
    assert.equal((await hub('release', ...HELLO, ...data)).code, 0)
    assert.match((await hub('versions', ...data)).stdout, /plugin +hello +1\.0\.0 +served/)
    assert.equal((await hub('yank', ...HELLO, ...data)).code, 0)
    assert.match((await hub('versions', ...data)).stdout, /plugin +hello +1\.0\.0 +yanked/)
    for (const args of [
      ['hold', ...HELLO],
      ['release', ...HELLO],
      [...publish.slice(0, -3), '--from', changed],
      [...publish.slice(0, -3), '--from', changed, '--replace'],
    ]) {
      const { code, stdout, stderr } = await hub(...args, ...data)
      assert.deepEqual([code, stdout, /is permanently yanked/.test(stderr)], [1, '', true], stderr)
    }
    assert.match((await hub('versions', ...data)).stdout, /plugin +hello +1\.0\.0 +yanked/)
  })

  it('publishes a ZIP unchanged, with a secret from a file', async t => {
    const folder = newFolder(t, { secret: `${SIGNING_SECRET}\n` })
    const bytes = buildZip([file('plugin.yaml', 'version: 1.0.0')])
    writeFileSync(join(folder, 'a.zip'), bytes)
    const secret = ['--signing-secret-file', join(folder, 'secret')]
    const data = ['--data', join(folder, 'data')]
    const ended = await hub('publish', ...HELLO, ...secret, ...data, '--archive', join(folder, 'a.zip'))
    assert.equal(ended.code, 0, ended.stderr)
    const store = openStore(join(folder, 'data'))
    t.after(() => store.close())
    const version = readListing(store, { kind: 'plugin', slug: 'hello' }).versions[0]
    assert.equal(version?.signature, signArchive(bytes, SIGNING_SECRET))
  })

  it('prints only the key that it creates, lists it without its value, and revokes it', async t => {
    const data = ['--data', join(newFolder(t), 'data')]
    const created = await hub('keys', 'create', '--name', 'ci', '--owner', 'alice', ...data)
    const key = created.stdout.trim()
    assert.match(key, /^hub_[\w-]{43}$/)
    assert.match(
      created.stderr,
      /^Note: .* contained no hub, so this command created one\. If that was a mistake, correct --data\.$/m,
    )
    assert.doesNotMatch((await hub('keys', 'create', '--name', 'ci', ...data)).stderr, /^Note: /m)
    const listed = (await hub('keys', 'list', ...data)).stdout
    assert.equal(listed.includes(key), false)
    const id = /^([0-9a-f-]{36}) .* alice .* active /m.exec(listed)?.[1] ?? ''
    assert.equal((await hub('keys', 'revoke', id, ...data)).code, 0)
    assert.match((await hub('keys', 'list', ...data)).stdout, /revoked/)
  })

  it('creates a publish key for a plugin, published or not, and lists what it is', async t => {
    const data = ['--data', join(newFolder(t), 'data')]
    const create = ['keys', 'create', '--name', 'ci', '--publish', ...data]
    const created = await hub(...create, '--slug', 'hello', '--kind', 'plugin')
    assert.match(created.stdout, /^publish_[\w-]{43}\n$/)
    assert.match(created.stderr, /^Created the publish key \S+ for the plugin hello\. Save it now/m)
    assert.match((await hub('keys', 'list', ...data)).stdout, / plugin\/hello \(publish\) +active /)
    for (const wrong of [[], ['--slug', 'hello', '--kind', 'plugin', '--owner', 'alice']])
      assert.equal((await hub(...create, ...wrong)).code, 2)
  })

  it('creates a key for a plugin that was never published, with a note', async t => {
    const data = ['--data', join(newFolder(t), 'data')]
    const plugin = newFolder(t, { 'plugin.yaml': 'name: a' })
    await hub('publish', ...HELLO, ...SECRET, ...data, '--from', plugin)
    for (const [slug, noted] of [
      ['hello', false],
      ['helo', true],
    ] as const) {
      const ended = await hub('keys', 'create', '--name', 'ci', '--kind', 'plugin', '--slug', slug, ...data)
      assert.match(ended.stdout, /^hub_\S+\n$/)
      assert.equal(/^Note: this hub has no plugin helo yet\. .*$/m.test(ended.stderr), noted, ended.stderr)
    }
  })

  it('detects whether a slug names a plugin or a service, and requires --kind only if it names both', async t => {
    const data = ['--data', join(newFolder(t), 'data')]
    const of = (kind: string): string[] => ['--kind', kind, '--slug', 'hello', '--version', '1.0.0']
    const hold = ['hold', '--slug', 'hello', '--version', '1.0.0', ...data]
    const newKey = ['keys', 'create', '--name', 'ci', '--slug', 'hello', ...data]
    await hub('keys', 'create', '--name', 'ci', ...data)
    const nothing = 'This hub has no plugin or service "hello": correct --slug'
    for (const [args, message] of [
      [hold, `${nothing}.`],
      [newKey, `${nothing}, or, if it is not published yet, add --kind.`],
    ] as const)
      assert.deepEqual(await hub(...args), { code: 1, stdout: '', stderr: `${message}\n` })
    await hub('publish', ...of('service'), ...SECRET, ...data, '--from', newFolder(t, { run: '' }))
    assert.match((await hub(...hold)).stdout, /^Held back the service hello 1\.0\.0: /)
    assert.equal((await hub(...newKey)).code, 0)
    assert.match((await hub('keys', 'list', ...data)).stdout, / service\/hello /)
    await hub('publish', ...of('plugin'), ...SECRET, ...data, '--from', newFolder(t, { 'plugin.yaml': 'name: a' }))
    for (const args of [hold, newKey]) {
      const { code, stdout, stderr } = await hub(...args)
      assert.deepEqual([code, stdout, stderr], [2, '', 'This hub has both a plugin and a service hello: add --kind.\n'])
    }
    assert.match((await hub('hold', ...of('plugin'), ...data)).stdout, /^Held back the plugin hello 1\.0\.0: /)
  })

  it('serves, shares its data folder with other commands, and stops on a signal', async t => {
    const data = join(newFolder(t), 'data')
    const server = await serve(t, data)
    assert.match(server.lines[1] ?? '', /admin_/)
    await hub('publish', ...HELLO, ...SECRET, '--data', data, '--from', newFolder(t, { 'plugin.yaml': 'name: a' }))
    const key = (await hub('keys', 'create', '--name', 'ci', '--data', data)).stdout.trim()
    const response = await fetch(`${server.url}/plugins/hello/install`, { headers: { 'X-API-Key': key } })
    assert.equal(response.status, 200)
    await response.arrayBuffer()
    assert.equal(await server.stop(), 0)
    assert.equal((await serve(t, data)).lines.length, 1)
  })

  it('creates one data folder from several processes at once', async t => {
    const data = join(newFolder(t), 'data')
    const names = sampled(['a', 'b', 'c', 'd', 'e', 'f'], 3)
    const ended = await Promise.all(names.map(name => hubProcess('keys', 'create', '--name', name, '--data', data)))
    assert.deepEqual(
      ended.map(({ code, stderr }) => [code, code === 0 ? '' : stderr]),
      names.map(() => [0, '']),
    )
    assert.equal((await hub('keys', 'list', '--data', data)).stdout.trim().split('\n').length, names.length + 1)
  })

  it('creates no data folder to list, revoke or yank', async t => {
    const data = join(newFolder(t), 'data')
    for (const args of [['versions'], ['keys', 'list'], ['keys', 'revoke', 'x'], ['yank', ...HELLO]]) {
      assert.equal((await hub(...args, '--data', data)).code, 1)
    }
    assert.equal(existsSync(data), false)
  })

  it('names the port that is in use', async t => {
    const other = createServer().listen(0, '127.0.0.1')
    t.after(() => other.close())
    await once(other, 'listening')
    const port = String((other.address() as AddressInfo).port)
    const ended = await hub('--port', port, '--data', join(newFolder(t), 'data'))
    assert.equal(ended.code, 1)
    assert.match(ended.stderr, new RegExp(`^Port ${port} of 127\\.0\\.0\\.1 .*\n$`))
  })

  it('refuses a plugin whose plugin.yaml has a different version', async t => {
    const publish = ['publish', ...HELLO, ...SECRET, '--data', join(newFolder(t), 'data'), '--from']
    assert.equal((await hub(...publish, newFolder(t, { 'plugin.yaml': 'version: 1.0.1' }))).code, 1)
    assert.equal((await hub(...publish, newFolder(t, { 'plugin.yaml': 'version: v1.0.0' }))).code, 0)
  })

  for (const [args, code, printed] of [
    [['keys', 'create', '--help'], 0, /^Usage: npm run hub -- keys create [\s\S]*\n===\n$/],
    [['versions', '--data', '/missing'], 1, /^===\nThe data folder \/missing [^\n]*\n$/],
    [['bogus'], 2, /^===\nThere is no command "bogus"[^\n]*\n$/],
  ] as const) {
    it(`ends its process with ${code} for "${args.join(' ')}"`, async () => {
      const ended = await hubProcess(...args)
      assert.equal(ended.code, code)
      assert.match(`${ended.stdout}===\n${ended.stderr}`, printed)
    })
  }

  for (const [args, hint] of [
    [['publish', '--kind', 'plugins', '--slug', 'hello', '--version', '1', ...SECRET, '--from', '.'], /mean plugin\?/],
    [
      ['publish', '--slug', 'My Plugin', ...SECRET, '--from', '.'],
      /--slug must be .*, not "My Plugin": correct it, for example to my-plugin\./,
    ],
    [['publish', ...HELLO, ...SECRET, '--git', 'https://example.com/a.git', '--ref', 'v1'], /local clone/],
    [['publish', ...HELLO, ...SECRET, '--git', 'git@example.com:a/b.git', '--ref', 'v1'], /local clone/],
    [['serve', '--foo', 'x'], /--foo.*--data, --port/],
    [
      ['publish', '--kind', 'service', '--slug', 'x', '--version', '1 0', ...SECRET, '--from', '.'],
      /--version must be .*, not "1 0": correct it\.$/m,
    ],
    [
      ['publish', ...SECRET, '--from', '.', '--repo', 'a'],
      /--repo must have the form owner\/repo@tag, not "a": correct it\.$/m,
    ],
    [['keys', 'create', '--name', 'a\nb'], /--name must be .*, not "a\\nb": correct it\.$/m],
    [
      ['project', 'seal', '--source', '.', '--version', '1'],
      /--version must be a semantic .*, not "1": correct it\.$/m,
    ],
    [['keys', 'renew'], /create, list, revoke/],
    [['serve', '--port'], /^The option --port needs a value: add one, /],
    [['serve', '--behind-proxy=no'], /^The option --behind-proxy takes no value: remove the value\./],
    [['publish', '--from', '--kind', 'plugin'], /^The option --from needs a value, .* write --from=VALUE\./],
  ] as const) {
    it(`suggests a correction for "${args.slice(0, 3).join(' ')}"`, async () => {
      const ended = await hub(...args)
      assert.equal(ended.code, 2)
      assert.match(ended.stderr, hint)
    })
  }

  for (const args of [
    ['bogus'],
    ['constructor'],
    ['serve', '--bogus'],
    ['serve', '--port', 'x'],
    ['serve', '--port', '65536'],
    ['serve', 'extra'],
    ['--port'],
    ['keys'],
    ['keys', 'bogus'],
    ['keys', 'create'],
    ['keys', 'revoke'],
    ['keys', 'create', '--name', 'ci', '--kind', 'plugin'],
    ['yank', '--slug', 'hello'],
    ['yank', '--kind', 'theme', '--slug', 'hello', '--version', '1.0.0'],
    ['publish', ...HELLO, ...SECRET],
    ['publish', ...HELLO, ...SECRET, '--from', '.', '--git', '.'],
    ['publish', ...HELLO, ...SECRET, '--git', '.'],
    ['publish', ...HELLO, '--from', '.'],
    ['publish', ...HELLO, '--from', '.', '--signing-secret-env', 'HUB_TEST_UNSET'],
    ['publish', ...HELLO, '--from', '.', '--signing-secret', 'argv'],
    ['publish', '--slug', '../x', ...SECRET, '--from', '.'],
    ['publish', '--kind', 'plugins', ...SECRET, '--from', '.'],
  ]) {
    it(`exits with 2 and one sentence for "${args.join(' ')}"`, async t => {
      const ended = await hub(...args, '--data', join(newFolder(t), 'data'))
      assert.equal(ended.code, 2)
      assert.equal(ended.stderr.trim().split('\n').length, 1)
      assert.equal(ended.stdout, '')
    })
  }

  it('never prints a secret that was given in place of the name of its variable', async t => {
    const data = join(newFolder(t), 'data')
    for (const secret of ['c2VjcmV0/+=', 'c0ffee', 'hub_key']) {
      const source = ['--sealed', 'x', '--hub-url', 'http://127.0.0.1:1']
      for (const args of [
        ['publish', ...HELLO, '--from', '.', '--data', data, '--signing-secret-env', secret],
        ['project', 'publish', ...source, '--devkey-env', secret],
        ['publish', ...HELLO, ...SECRET, '--from', '.', '--hub-url', 'http://127.0.0.1:1', '--token-env', secret],
      ]) {
        const { code, stdout, stderr } = await hub(...args)
        assert.equal(code, 2)
        assert.match(
          stderr,
          /give the name of the variable that contains the (signing secret|dev key|token), not the \1 itself\.\n$/,
        )
        assert.ok(!`${stdout}${stderr}`.includes(secret), stderr)
      }
    }
  })

  it('names a data folder that cannot be made', async t => {
    const file = join(newFolder(t, { file: '' }), 'file')
    for (const args of [
      ['serve', '--port', '0'],
      ['keys', 'create', '--name', 'ci'],
    ]) {
      const { code, stderr } = await hub(...args, '--data', file)
      assert.deepEqual(
        [code, stderr],
        [1, `${file} cannot be the data folder of a hub (ENOTDIR): name another one with --data.\n`],
      )
    }
  })

  for (const [name, args] of [
    ['an unknown key', ['keys', 'revoke', 'unknown']],
    ['an unknown version', ['yank', ...HELLO]],
    ['a missing folder', ['publish', ...HELLO, ...SECRET, '--from', '/missing']],
    ['a missing file', ['publish', ...HELLO, ...SECRET, '--archive', '/missing']],
    ['a missing secret', ['publish', ...HELLO, '--signing-secret-file', '/missing', '--from', '.']],
  ] as const) {
    it(`exits with 1 and one sentence for ${name}`, async t => {
      const ended = await hub(...args, '--data', join(newFolder(t), 'data'))
      assert.equal(ended.code, 1)
      assert.equal(ended.stderr.trim().split('\n').length, 1)
      assert.doesNotMatch(ended.stderr, /ENOENT/)
    })
  }

  for (const args of [['--help'], ['-h'], ['keys', '--help'], ['project', '--help']]) {
    it(`prints its help for "${args.join(' ')}"`, async () => {
      const ended = await hub(...args)
      assert.equal(ended.code, 0)
      assert.match(ended.stdout, /npm run hub -- /)
      assert.equal(ended.stderr, '')
    })
  }
})

async function serve(t: TestContext, data: string) {
  const child = spawn(process.execPath, [CLI, '--port', '0', '--data', data], {
    env: { ...process.env, NODE_COMPILE_CACHE: COMPILE_CACHE },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit')
  t.after(() => child.kill('SIGKILL'))
  const lines: string[] = []
  const reader = createInterface(child.stdout).on('line', line => lines.push(line))
  await once(reader, 'line')
  const url = /http:\S+/.exec(lines[0] ?? '')?.[0] ?? ''
  await (await fetch(`${url}/healthz`)).arrayBuffer()
  const stop = async () => {
    child.kill('SIGTERM')
    return (await exited)[0] as number | null
  }
  return { url, lines, stop }
}
