import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { createServer as createHttpServer } from 'node:http'
import { type AddressInfo, connect, createServer } from 'node:net'
import { join, resolve } from 'node:path'
import { describe, it } from 'node:test'
import { zipFolder } from '../../../hub/archive/make-zip.ts'
import { readListing } from '../../../hub/marketplace/catalogue.ts'
import { readPluginYaml } from '../../../hub/marketplace/plugin-yaml.ts'
import { signArchive } from '../../../hub/marketplace/publish.ts'
import { parsePluginDescription } from '../../../hub/project/manifest.ts'
import { openStore } from '../../../hub/store.ts'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { VERSION_SCALARS } from '../../core/content/version-scalars.ts'
import { CLOSED_PORT } from '../../net/loopback-server.ts'
import { CLI, hub } from '../run-cli.ts'
import { ADMIN_TOKEN, newFolder, runHub, SIGNING_SECRET } from '../running-hub.ts'

const PLUGIN = resolve(import.meta.dirname, '../../../examples/plugin')
const SERVICE = resolve(import.meta.dirname, '../../../examples/service')
const SECRET = ['--signing-secret-env', 'HUB_TEST_SECRET']

const QUOTE_IT = { name: 'HubError', status: 400, message: /^The [\w.]+ in plugin\.yaml .*: quote it\.$/ }

describe('publishing a private plugin', () => {
  it('keeps it private until --public', async t => {
    const data = ['--data', join(newFolder(t), 'data')]
    const store = () => openStore(data[1] ?? '')
    const isPrivate = async (...options: string[]) => {
      const { code, stderr } = await hub('publish', '--from', PLUGIN, ...SECRET, ...data, ...options)
      assert.equal(code, 0, stderr)
      const opened = store()
      try {
        return readListing(opened, { kind: 'plugin', slug: 'greeter' }).is_private
      } finally {
        opened.close()
      }
    }
    assert.deepEqual(
      [await isPrivate('--private'), await isPrivate(), await isPrivate('--public')],
      [true, true, false],
    )
    const both = await hub('publish', '--from', PLUGIN, ...SECRET, ...data, '--private', '--public')
    assert.match(both.stderr, /at most one of --private and --public/)
  })
})

describe('publishing without the options whose values plugin.yaml gives', () => {
  it('publishes a folder, a ZIP and a commit under the name and version in plugin.yaml', async t => {
    const folder = newFolder(t)
    const zip = join(folder, 'greeter.zip')
    writeFileSync(zip, zipFolder(PLUGIN).bytes)
    const repository = newFolder(t, { 'plugin.yaml': readFileSync(join(PLUGIN, 'plugin.yaml'), 'utf8') })
    const git = (...args: string[]) => execFileSync('git', ['-C', repository, ...args], { stdio: 'ignore' })
    git('init')
    git('add', '.')
    git('-c', 'user.name=a', '-c', 'user.email=a@b.c', 'commit', '-m', 'a')
    const missing = await hub('publish', '--git', repository, '--ref', 'v1', ...SECRET, '--data', join(folder, 'none'))
    assert.deepEqual(
      [missing.code, missing.stderr],
      [1, `${repository} has no tag, branch or commit "v1": correct --ref, or fetch it first.\n`],
    )
    const none = await hub('publish', '--git', folder, '--ref', 'v1', ...SECRET, '--data', join(folder, 'none'))
    assert.match(
      none.stderr,
      /^Git cannot archive v1 of \S+ \(fatal: not a git repository .*\): check --git and --ref\.\n$/,
    )
    const commit = ['publish', '--git', repository, '--ref', 'HEAD', ...SECRET, '--data', join(folder, 'none')]
    const env = { ...process.env, HUB_TEST_SECRET: SIGNING_SECRET, PATH: folder }
    const without = spawnSync(process.execPath, [CLI, ...commit], { env, encoding: 'utf8' })
    assert.match(without.stderr, /^There is no program git on PATH: install git, or publish the folder with --from\.$/m)
    for (const [index, source] of [
      ['--from', PLUGIN],
      ['--archive', zip],
      ['--git', repository, '--ref', 'HEAD'],
    ].entries()) {
      const data = ['--data', join(folder, `data-${index}`)]
      const { code, stdout, stderr } = await hub('publish', ...source, ...SECRET, ...data)
      assert.equal(code, 0, stderr)
      assert.match(stdout, /^Published the plugin greeter 1\.0\.0: /)
      assert.match((await hub('versions', ...data)).stdout, /plugin +greeter +1\.0\.0 +served/)
    }
  })

  for (const [named, given] of [
    ['kind, slug and version', ['--kind', 'plugin', '--slug', 'greeter', '--version', '1.0.0']],
    ['a version with a v', ['--version', 'v1.0.0']],
    ['the kind alone', ['--kind', 'plugin']],
  ] as const) {
    it(`accepts options that agree with plugin.yaml: ${named}`, async t => {
      const ended = await publish(['--from', PLUGIN, ...given], join(newFolder(t), 'data'))
      assert.equal(ended.code, 0, ended.stderr)
    })
  }

  it('says if --slug is not the name in plugin.yaml, and publishes under that slug', async t => {
    const data = join(newFolder(t), 'data')
    const noted = await publish(['--from', PLUGIN, '--slug', 'gretter'], data)
    assert.equal(noted.code, 0)
    assert.match(noted.stdout, /^Published the plugin gretter 1\.0\.0: /)
    assert.match(noted.stderr, /^Note: --slug is gretter, but plugin\.yaml names the plugin greeter\. [^\n]+\n$/m)
    const silent = [
      await publish(['--from', PLUGIN, '--slug', 'greeter'], data),
      await publish(['--from', SERVICE, '--kind', 'service', '--slug', 'clock', '--version', '1.0.0'], data),
      await publish(['--from', newFolder(t, { 'plugin.yaml': 'name: My Plugin\nversion: "1"\n' })], data),
      await publish(['--from', newFolder(t, { 'plugin.yaml': 'version: "1"\n' }), '--slug', 'nameless'], data),
    ]
    for (const { code, stderr } of silent) assert.deepEqual([code, stderr], [0, ''])
  })

  for (const [yaml, published] of [
    ['name: greeter\nversion: 1.11\n', 'greeter 1.11'],
    ['name: My Plugin!\nversion: "2.0.0"\n', 'my-plugin 2.0.0'],
    ['name: "7"\nversion: 2\n', '7 2'],
    ['name: greeter\nversion: v3.1.0-beta.1\n', 'greeter v3.1.0-beta.1'],
  ] as const) {
    it(`publishes ${published}, which a host reads as the same`, async t => {
      const { code, stdout, stderr } = await publish(
        ['--from', newFolder(t, { 'plugin.yaml': yaml })],
        join(newFolder(t), 'data'),
      )
      assert.equal(code, 0, stderr)
      assert.ok(stdout.startsWith(`Published the plugin ${published}: `), stdout)
      const [ours, hosts] = [readPluginYaml(Buffer.from(yaml)), parsePluginYaml(yaml)]
      assert.deepEqual([ours.name, ours.version], [hosts.name, hosts.version])
    })
  }

  for (const [scalar, version] of VERSION_SCALARS) {
    const text = `version: ${scalar}\n`
    const isRefused = version === undefined || /^\d+\.\d*0$/.test(scalar)
    it(`${isRefused ? 'refuses' : 'accepts'} ${JSON.stringify(text)}, in a plugin and in a project`, () => {
      if (isRefused) assert.throws(() => readPluginYaml(Buffer.from(text)), QUOTE_IT)
      else assert.equal(readPluginYaml(Buffer.from(text)).version, version)
      if (isRefused) assert.throws(() => parsePluginDescription(text, 'plugin.yaml'), QUOTE_IT)
      else if (version !== '~') assert.equal(parsePluginDescription(text, 'plugin.yaml').version, version)
    })
  }

  it('refuses other values that YAML parsers read differently', () => {
    for (const text of [
      ...['name: 7\n', 'name: 010\n', 'name:\n', '{version}\n', 'entry_point: 1_0\n', 'execution_mode: off\n'],
      'environment: {required: [NO]}\n',
    ])
      assert.throws(() => readPluginYaml(Buffer.from(text)), QUOTE_IT, text)
  })

  it('names the version to raise if it was published with other files', async t => {
    const data = join(newFolder(t), 'data')
    const publishFiles = (files: Readonly<Record<string, string>>, ...given: string[]) =>
      publish(['--from', newFolder(t, files), ...given], data)
    const plugin = { 'plugin.yaml': 'name: greeter\nversion: 1.0.0\n' }
    const service = ['--kind', 'service', '--slug', 'clock', '--version', '1.0.0']
    assert.equal((await publishFiles(plugin)).code, 0)
    assert.equal((await publishFiles(plugin)).code, 0)
    assert.equal((await publishFiles({ run: '' }, ...service)).code, 0)
    const refused = await publishFiles({ ...plugin, more: '' })
    assert.equal(refused.code, 1)
    assert.match(
      refused.stderr,
      /^Version 1\.0\.0 of the plugin greeter is already [^\n]+: raise the version in plugin\.yaml /,
    )
    assert.match((await publishFiles({ run: '1' }, ...service)).stderr, /: raise --version and publish again\./)
  })

  it('names in its help the keys that it reads', async () => {
    const { stdout } = await hub('publish', '--help')
    assert.match(stdout, /--version V +the version \(default: the version in plugin\.yaml\)/)
  })
})

/** In a message, `$FOLDER` stands for the folder with the files. */
const REFUSED: Readonly<
  Record<string, readonly [Readonly<Record<string, string>>, readonly string[], RegExp, number?]>
> = {
  'a different version': [
    { 'plugin.yaml': 'name: a\nversion: 1.0.1\n' },
    ['--version', '1.0.0'],
    /^The version in plugin\.yaml is 1\.0\.1, but --version is 1\.0\.0: remove --version, or correct the file\.$/,
  ],
  'a different kind': [
    { 'plugin.yaml': 'name: a\nversion: 1.0.1\n' },
    ['--kind', 'service', '--slug', 'a', '--version', '1.0.1'],
    /^\$FOLDER has a plugin\.yaml, so it is a plugin, but --kind is service: remove --kind, or that file\.$/,
  ],
  'a different kind and an unreadable plugin.yaml': [
    { 'plugin.yaml': '[' },
    ['--kind', 'service', '--slug', 'a', '--version', '1.0.1'],
    /so it is a plugin, but --kind is service/,
  ],
  'a version that no hub serves': [
    { 'plugin.yaml': 'name: a\nversion: 1.0 beta\n' },
    [],
    /^The version "1\.0 beta" in plugin\.yaml must be 1 to 128 characters [^\n]+: correct it\.$/,
  ],
  'a version with control characters': [
    { 'plugin.yaml': 'name: a\nversion: "1\\e[2J\\u202e\\x9b"\n' },
    ['--version', '1'],
    /^The version "1\\u001b\[2J\?\?" in plugin\.yaml must be /,
  ],
  'the version latest': [
    { 'plugin.yaml': 'name: a\nversion: latest\n' },
    [],
    /^The version "latest" in plugin\.yaml must not be "latest", which stands for the newest version: correct it\.$/,
  ],
  'invalid YAML': [
    { 'plugin.yaml': 'name: a\nversion: [1\n' },
    [],
    /^plugin\.yaml is not valid YAML in line \d: correct it\.$/,
  ],
  'a plugin.yaml without a version': [
    { 'plugin.yaml': 'name: a\n' },
    [],
    /^plugin\.yaml has no version: add the line .*--version\.$/,
    2,
  ],
  'a plugin.yaml without a name': [
    { 'plugin.yaml': 'version: 1.0.0\n' },
    [],
    /^plugin\.yaml has no name: add the line .*--slug\.$/,
    2,
  ],
  'a name without an ASCII letter': [
    { 'plugin.yaml': 'name: 插件\nversion: 1.0.0\n' },
    [],
    /^The name "插件" in plugin\.yaml cannot become a slug: name one with --slug\.$/,
    2,
  ],
  'a folder without plugin.yaml': [
    { 'run.sh': '' },
    [],
    /^\$FOLDER has no plugin\.yaml at its root, .*: add one, or publish a service with --kind service, --slug and --version\.$/,
  ],
  'a project': [
    { 'deployment/install.yaml': '', 'plugins/a/plugin.yaml': '' },
    [],
    /^\$FOLDER is a project, because it has deployment\/install\.yaml: publish its folder with "project publish --source"\.$/,
  ],
  'plugin.yml': [{ 'plugin.yml': 'name: a\nversion: 1.0.0\n' }, [], /^\$FOLDER has no plugin\.yaml at its root/],
  'a service without a name': [
    { 'run.sh': '' },
    ['--kind', 'service', '--version', '1.0.0'],
    /^A service has no file that gives its slug: add --slug\.$/,
    2,
  ],
  'a service without a name or a version': [
    { 'run.sh': '' },
    ['--kind', 'service'],
    /^A service has no file that gives its slug and version: add --slug and --version\.$/,
    2,
  ],
}

describe('publishing', () => {
  for (const [what, [files, given, message, code = 1]] of Object.entries(REFUSED)) {
    it(`refuses ${what} in one sentence, and publishes nothing`, async t => {
      const [folder, data] = [newFolder(t, files), join(newFolder(t), 'data')]
      const ended = await publish(['--from', folder, ...given], data)
      assert.equal(ended.code, code, ended.stderr)
      assert.match(ended.stderr.replaceAll(folder, '$FOLDER').replace(/\n$/, ''), message)
      assert.equal(ended.stderr.trim().split('\n').length, 1)
      assert.equal(existsSync(data), false)
    })
  }

  it('resolves paths from the folder where npm was called, but keeps its own data folder in the clone', async t => {
    const [clone, caller] = [newFolder(t), newFolder(t, { 'mine/plugin.yaml': 'name: mine\nversion: 1.0.0\n' })]
    const env = { ...process.env, HUB_TEST_SECRET: SIGNING_SECRET, npm_lifecycle_event: 'hub', INIT_CWD: caller }
    const publishMine = (...args: string[]) =>
      execFileSync(process.execPath, [CLI, 'publish', '--from', 'mine', ...SECRET, ...args], { cwd: clone, env })
    publishMine()
    publishMine('--data', 'own')
    for (const data of [join(clone, '.hub-data'), join(caller, 'own')])
      assert.match((await hub('versions', '--data', data)).stdout, /plugin +mine +1\.0\.0 /)
    assert.equal(existsSync(join(caller, '.hub-data')), false)
  })

  it('refuses a ZIP in place of a folder, and a folder in place of a ZIP', async t => {
    const [zip, data] = [join(newFolder(t), 'a.zip'), join(newFolder(t), 'data')]
    writeFileSync(zip, zipFolder(SERVICE).bytes)
    for (const [source, message] of [
      [
        ['--from', zip],
        /^The option --from takes a folder, but \S+a\.zip is a file: publish a ZIP with --archive\.\n$/,
      ],
      [['--archive', SERVICE], /^The option --archive takes a ZIP, but \S+ is a folder: publish it with --from\.\n$/],
    ] as const) {
      const ended = await publish(source, data)
      assert.deepEqual([ended.code, existsSync(data)], [2, false])
      assert.match(ended.stderr, message)
    }
  })
})

describe('publishing to a running hub', () => {
  it('sends the ZIP and its signature, and neither the signing secret nor the folder', async t => {
    const running = await runHub(t)
    const key = running.newKey({ kind: 'plugin', slug: 'greeter', can_publish: true })
    const requests: Buffer[] = []
    const proxy = createServer(client => {
      const hubSocket = connect(Number(new URL(running.url).port), '127.0.0.1')
      client.on('data', chunk => requests.push(chunk))
      for (const socket of [client, hubSocket]) socket.on('error', () => {})
      client.pipe(hubSocket).pipe(client)
    }).listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    t.after(() => proxy.close())
    const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/app/marketplace/`
    const first = await publishOver(url, key, '--repo', 'me/greeter@v1.0.0')
    assert.deepEqual([first.code, first.stderr], [0, ''])
    const found = readListing(running.store, { kind: 'plugin', slug: 'greeter' }).versions[0]
    assert.match(
      first.stdout,
      new RegExp(`^Published the plugin greeter 1\\.0\\.0: ${found?.size} bytes, SHA-256 ${found?.sha256}$`, 'm'),
    )
    assert.deepEqual(
      [found?.signature, found?.repo],
      [signArchive(zipFolder(PLUGIN).bytes, SIGNING_SECRET), 'me/greeter@v1.0.0'],
    )
    const sent = Buffer.concat(requests)
    assert.deepEqual([sent.includes(key), sent.includes(SIGNING_SECRET), sent.includes(PLUGIN)], [true, false, false])
    const again = await publishOver(url, key)
    assert.deepEqual([again.code, /^Note: this version was already published/.test(again.stderr)], [0, true])
  })

  it('publishes a service, and replaces it only with the admin token', async t => {
    const running = await runHub(t)
    const key = running.newKey({ kind: 'service', slug: 'clock', can_publish: true })
    const service = (run: string) => [
      '--from',
      newFolder(t, { run }),
      '--kind',
      'service',
      '--slug',
      'clock',
      '--version',
      '1',
    ]
    assert.equal((await publishOver(running.url, key, ...service('1'))).code, 0)
    const other = await publishOver(running.url, key, ...service('2'))
    assert.equal(other.code, 1)
    assert.match(
      other.stderr,
      /answered 409 \(Version 1 of the service clock is already published with different bytes/,
    )
    const replaced = await publishOver(running.url, key, ...service('2'), '--replace')
    assert.match(
      replaced.stderr,
      /answered 403 \(Only the admin token may replace a version: raise the version\.\): nothing/,
    )
    assert.equal((await publishOver(running.url, ADMIN_TOKEN, ...service('2'), '--replace')).code, 0)
  })

  it('checks what it would send first, and sends nothing that hosts refuse', async t => {
    const from = newFolder(t, { 'plugin.yaml': 'name: a' })
    const ended = await publishOver(`http://127.0.0.1:${CLOSED_PORT}`, 'token', '--from', from)
    assert.deepEqual([ended.code, /^plugin\.yaml has no version/.test(ended.stderr)], [2, true])
  })

  it('does not believe a hub that answers with other bytes', async t => {
    const answer = JSON.stringify({ kind: 'plugin', slug: 'greeter', version: '1.0.0', sha256: 'a'.repeat(64) })
    const server = createHttpServer((request, response) =>
      request.resume().on('end', () => response.writeHead(201).end(answer)),
    ).listen(0, '127.0.0.1')
    await once(server, 'listening')
    t.after(() => server.close())
    const ended = await publishOver(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, 'token')
    assert.equal(ended.code, 1)
    assert.match(ended.stderr, /answered with another version or other bytes/)
  })

  for (const [url, token, code, args] of [
    ['http://hub.example.com', 'token', 1, []],
    ['https://user:password@hub.example.com', 'token', 1, []],
    ['https://hub.example.com', 'two\nlines', 2, []],
    ['https://hub.example.com', '', 2, []],
    ['https://hub.example.com', 'token', 2, ['--data', '/tmp/none']],
    ['https://hub.example.com', 'token', 2, ['--private']],
    ['https://hub.example.com', 'token', 2, ['--public']],
    ['https://hub.example.com', 'token', 2, ['--name', 'Greeter']],
  ] as const)
    it(`ends with ${code} and one sentence, before it connects: ${[url, JSON.stringify(token), ...args].join(' ')}`, async () => {
      const ended = await publishOver(url, token, ...args)
      assert.equal(ended.code, code, ended.stderr)
      assert.match(ended.stderr, /^[^\n]+\n$/)
      assert.doesNotMatch(ended.stderr, /answered|reached|lines\b.*two|password@/)
    })

  it('needs both the URL and the token', async () => {
    for (const option of [
      ['--hub-url', 'https://hub.example.com'],
      ['--token-env', 'HUB_TEST_SECRET'],
    ])
      assert.equal((await hub('publish', '--from', PLUGIN, ...SECRET, ...option)).code, 2)
  })
})

/** Publishes the example, unless the arguments name another source. */
async function publishOver(url: string, token: string, ...args: string[]) {
  process.env['HUB_TEST_TOKEN'] = token
  const source = args.includes('--from') ? [] : ['--from', PLUGIN]
  const ended = await hub('publish', ...source, ...SECRET, '--hub-url', url, '--token-env', 'HUB_TEST_TOKEN', ...args)
  delete process.env['HUB_TEST_TOKEN']
  return ended
}

function publish(args: readonly string[], data: string) {
  return hub('publish', ...args, ...SECRET, '--data', data)
}
