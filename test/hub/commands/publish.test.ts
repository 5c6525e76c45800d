import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { describe, it } from 'node:test'
import { zipFolder } from '../../../hub/archive/make-zip.ts'
import { readListing } from '../../../hub/marketplace/catalogue.ts'
import { readPluginYaml } from '../../../hub/marketplace/plugin-yaml.ts'
import { parsePluginDescription } from '../../../hub/project/manifest.ts'
import { openStore } from '../../../hub/store.ts'
import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import { VERSION_SCALARS } from '../../core/content/version-scalars.ts'
import { CLI, hub } from '../run-cli.ts'
import { newFolder, SIGNING_SECRET } from '../running-hub.ts'

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

function publish(args: readonly string[], data: string) {
  return hub('publish', ...args, ...SECRET, '--data', data)
}
