import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, lstatSync, mkdirSync, readdirSync, readFileSync, symlinkSync, utimesSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { comparePaths } from '../../../hub/project/manifest.ts'
import { parseZstdFrames } from '../../../src/core/archive/zstd-frames.ts'
import { missingTools } from '../../extent.ts'
import { newFolder } from '../running-hub.ts'
import { decryptSealed, extractTar, listTar, newShop, openSealed, PLAN_HEAD, SHOP, sealShop } from './project-source.ts'

const BUILT_AT = new Date('2026-01-02T03:04:05Z')
const SAME_BYTES = (bytes: number) => Buffer.alloc(bytes, 7)

const TREE_DIGEST_IN_PYTHON = `
import hashlib, os, sys
root = sys.argv[1]
paths = [os.path.relpath(os.path.join(d, f), root) for d, _, fs in os.walk(root) for f in fs]
paths = sorted((p for p in paths if p != "manifest.json"), key=lambda p: p.split("/"))
lines = [p + ":" + hashlib.sha256(open(os.path.join(root, p), "rb").read()).hexdigest() for p in paths]
print(hashlib.sha256("\\n".join(lines).encode()).hexdigest())
`

describe('a sealed project', () => {
  it('is a nonce, an encrypted zstd stream of a tar, and a tag, signed as a whole', async t => {
    const tar = openSealed(await sealShop(t, { builtAt: BUILT_AT }))
    const members = listTar(tar).map(line => line.replace(/ +/g, ' ').split(' '))
    assert.deepEqual(
      members.map(([mode, owner, , date, , name]) => [mode, owner, date, name]),
      [
        ['-rw-r--r--', 'manifest.json'],
        ['drwxr-xr-x', 'deployment/'],
        ['-rw-r--r--', 'deployment/install.yaml'],
        ['drwxr-xr-x', 'extensions/'],
        ['drwxr-xr-x', 'extensions/mailer/'],
        ['-rw-r--r--', 'extensions/mailer/run.sh'],
        ['drwxr-xr-x', 'plugins/'],
        ['drwxr-xr-x', 'plugins/cart/'],
        ['-rw-r--r--', 'plugins/cart/.env.template'],
        ['-rw-r--r--', 'plugins/cart/plugin.yaml'],
        ['drwxr-xr-x', 'plugins/cart/src/'],
        ['-rw-r--r--', 'plugins/cart/src/main.py'],
      ].map(([mode, name]) => [mode, '0/0', '2026-01-02', name?.replace(/\/$/, '')]),
    )
  })

  it('contains a stub of each part whose step names a source, and repeats the source in manifest.json', async t => {
    const commit = 'a1'.repeat(20)
    const plan = `${PLAN_HEAD}steps:
  - {id: cart, action: install_plugin, plugin: cart, source: {marketplace_slug: carts}}
  - {id: till, action: install_plugin, plugin: till, source: {marketplace_slug: tills, marketplace_version: 2.0.0}}
  - {id: mailer, action: install_extension, extension: mailer, source: {url: "https://git.example.org/x", ref: ${commit}}}
  - {id: env, action: write_env, plugin: till, from: plugins/till/.env.template, depends_on: [till]}
`
    const sealed = await sealShop(t, {}, { 'deployment/install.yaml': plan })
    const folder = extractTar(t, openSealed(sealed))
    assert.deepEqual(readdirSync(join(folder, 'plugins/cart')).sort(), ['.env.template', 'plugin.yaml'])
    assert.deepEqual(readdirSync(join(folder, 'plugins/till')), [])
    assert.deepEqual(readdirSync(join(folder, 'extensions/mailer')), [])
    const latest = { marketplace_slug: 'carts', marketplace_version: 'latest', marketplace_kind: 'plugin' }
    const named = { marketplace_slug: 'tills', marketplace_version: '2.0.0', marketplace_kind: 'plugin' }
    const { plugins, extensions } = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'))
    assert.partialDeepStrictEqual(plugins, [
      { id: 'cart', version: '1.10', source: latest },
      { id: 'till', version: '2.0.0', source: named },
    ])
    assert.deepEqual(extensions, [{ id: 'mailer', source: { url: 'https://git.example.org/x', ref: commit } }])
    assert.ok(sealed.leftOut.includes('plugins/cart/src/main.py'))
  })

  const ref = 'a1'.repeat(20)
  const places = {
    'its step': [{ plan: 'source: {marketplace_slug: carts}' }, {}],
    'its own plugin.yaml': [{ 'plugins/cart/plugin.yaml': 'name: cart\nsource: {marketplace_slug: carts}\n' }, {}],
    'a registry, by its id': [{}, { sources: { cart: { source: { marketplace_slug: 'carts' } } } }],
    'a registry, by its path': [{}, { sources: { 'plugins/cart': { marketplace_slug: 'carts' } } }],
    'two places that agree': [
      { 'plugins/cart/plugin.yaml': 'name: cart\nsource:\n  marketplace_slug: carts\n  url:\n  ref: ""\n' },
      { sources: { cart: { marketplace_slug: 'carts', marketplace_version: 'latest', subdirectory: null } } },
    ],
  } as const
  for (const [name, [files, options]] of Object.entries(places))
    it(`seals only a stub of a part whose source is in ${name}`, async t => {
      const { plan = '', ...more } = files as Record<string, string>
      const step = `{id: cart, action: install_plugin, plugin: cart${plan === '' ? '' : `, ${plan}`}}`
      const given = { ...more, 'deployment/install.yaml': `${PLAN_HEAD}steps: [${step}]\n` }
      const sealed = await sealShop(t, options, given)
      assert.ok(sealed.leftOut.includes('plugins/cart/src/main.py'))
      const source = { marketplace_slug: 'carts', marketplace_version: 'latest', marketplace_kind: 'plugin' }
      assert.partialDeepStrictEqual(sealed.manifest.plugins, [{ id: 'cart', source }])
    })

  for (const name of ['service.yaml', 'extension.yaml'])
    it(`seals only a stub of an extension whose source is in its ${name}`, async t => {
      const file = `source:\n  url: https://git.example.org/x\n  ref: ${ref.toUpperCase()}\n  marketplace_kind: plugin\n`
      const sealed = await sealShop(t, {}, { [`extensions/mailer/${name}`]: file })
      assert.deepEqual(sealed.manifest.extensions, [
        { id: 'mailer', source: { url: 'https://git.example.org/x', ref } },
      ])
      assert.ok(sealed.leftOut.includes('extensions/mailer/run.sh'))
    })

  it('takes no source from a file of another kind, or for a part of another project', async t => {
    const files = { 'extensions/mailer/service.yaml': 'a: 1\n---\nsource: ./mailer\n' }
    const { manifest } = await sealShop(t, { sources: { till: { marketplace_slug: 'till' } } }, files)
    assert.deepEqual(
      [manifest.plugins.length, manifest.plugins[0]?.source, manifest.extensions[0]?.source],
      [1, undefined, undefined],
    )
  })

  it('is refused with different sources of one part, which it names', async t => {
    const files = { 'plugins/cart/plugin.yaml': 'name: cart\nsource: {marketplace_slug: carts}\n' }
    await assert.rejects(sealShop(t, { sources: { cart: { marketplace_slug: 'other' } } }, files), {
      status: 400,
      message:
        /of cart in the file of sources gives plugins\/cart a different source than The source in plugins\/cart\/plugin\.yaml/,
    })
  })

  it('has the plugins folder that integration.yaml names', async t => {
    const { 'plugins/cart/plugin.yaml': yaml, 'plugins/cart/.env.template': template } = SHOP
    const moved = { 'apps/cart/plugin.yaml': yaml, 'apps/cart/.env.template': template }
    const none = {
      'plugins/cart/plugin.yaml': undefined,
      'plugins/cart/.env.template': undefined,
      'plugins/cart/src/main.py': undefined,
    }
    for (const written of ['apps', './apps/', '"apps"']) {
      const files = { ...moved, ...none, 'integration.yaml': `plugins:\n  directory: ${written}\n` }
      const { manifest } = await sealShop(t, {}, files)
      assert.equal(manifest.plugins_dirname, 'apps')
    }
    const absolute = { 'integration.yaml': 'plugins: {directory: /srv/apps}\n' }
    await assert.rejects(sealShop(t, {}, absolute), { status: 400, message: /pluginsDirname/ })
    assert.equal((await sealShop(t, { pluginsDirname: 'plugins' }, absolute)).manifest.plugins_dirname, undefined)
  })

  it('is refused with a source that names no commit', async t => {
    const step =
      '{id: cart, action: install_plugin, plugin: cart, source: {url: "https://git.example.org/x", ref: main}}'
    const plan = { 'deployment/install.yaml': `${PLAN_HEAD}steps:\n  - ${step}\n` }
    await assert.rejects(sealShop(t, {}, plan), /full commit id/)
  })

  const commit = 'a1'.repeat(20)
  const cart = (source: string) => `{id: cart, action: install_plugin, plugin: cart, source: ${source}}`
  const unusable: [what: string, steps: string[]][] = [
    ...[
      ...[`{url: "https://user:token@host/x", ref: ${commit}}`, `{url: "https://token@host/x", ref: ${commit}}`],
      ...[
        `{url: "https://host/x?token=y", ref: ${commit}}`,
        `{url: "https://host/${'é'.repeat(400)}", ref: ${commit}}`,
      ],
      ...[`{url: "https:///x", ref: ${commit}}`, `{url: "https://host/x", ref: ${commit}, subdirectory: ../x}`],
      ...[
        '{marketplace_slug: ../x}',
        `{marketplace_slug: x, ref: ${commit}}`,
        '{marketplace_slug: x, subdirectory: /x}',
      ],
      ...[
        `{url: "https://host/x", ref: ${commit}, marketplace_version: 1.0.0}`,
        '{marketplace_slug: x, marketplace_version: ../1}',
      ],
    ].map(source => [`the source ${source.slice(0, 60)}`, [cart(source)]] satisfies [string, string[]]),
    [
      'a source in a step that installs nothing',
      [cart('{marketplace_slug: x}'), '{id: r, action: restart, plugin: cart, source: {marketplace_slug: x}}'],
    ],
    [
      'two sources of one part',
      [cart('{marketplace_slug: x}'), cart('{marketplace_slug: y}').replace('id: cart', 'id: again')],
    ],
  ]
  for (const [what, steps] of unusable) {
    it(`is refused with ${what}`, async t => {
      const plan = `${PLAN_HEAD}steps:\n${steps.map(step => `  - ${step}\n`).join('')}`
      await assert.rejects(sealShop(t, {}, { 'deployment/install.yaml': plan }), { status: 400, message: /source/ })
    })
  }

  it('describes itself in manifest.json', async t => {
    const sealed = await sealShop(t, { builtAt: BUILT_AT, projectName: 'The shop' })
    const folder = extractTar(t, openSealed(sealed))
    const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'))
    assert.deepEqual(manifest, sealed.manifest)
    const sha256 = (lines: string[]) => createHash('sha256').update(lines.join('\n')).digest('hex')
    const line = (path: keyof typeof SHOP, name: string) => `${name}:${sha256([SHOP[path]])}`
    assert.deepEqual(
      { ...manifest, content_sha256: undefined },
      {
        format_version: '1',
        project_id: 'shop',
        project_name: 'The shop',
        version: '1.0.0',
        built_at: '2026-01-02T03:04:05Z',
        plugins: [
          {
            id: 'cart',
            version: '1.10',
            sha256: sha256([
              line('plugins/cart/.env.template', '.env.template'),
              line('plugins/cart/plugin.yaml', 'plugin.yaml'),
              line('plugins/cart/src/main.py', 'src/main.py'),
            ]),
            environment: { required: ['DB_URL'], optional: [] },
          },
        ],
        extensions: [{ id: 'mailer', sha256: sha256([line('extensions/mailer/run.sh', 'run.sh')]) }],
        content_sha256: undefined,
      },
    )
  })

  it('has the content digest that Python computes', { skip: missingTools('python3') }, async t => {
    const names = ['q.txt', 'q/b', 'q-b', 'Z', 'ä', '\uFF21', '\u{1F600}', 'q/c.d/e', 'q/c-d/e', 'q/c/e']
    const source = newShop(t, Object.fromEntries(names.map(name => [`plugins/cart/${name}`, name])))
    symlinkSync('../plugin.yaml', join(source, 'plugins/cart/src/link'))
    const sealed = await sealShop(t, { source })
    const folder = extractTar(t, openSealed(sealed))
    const digest = execFileSync('python3', ['-c', TREE_DIGEST_IN_PYTHON, folder], { encoding: 'utf8' })
    assert.equal(sealed.manifest.content_sha256, digest.trim())
  })

  it('is the same for the same files, facts, key and random bytes, whatever the times and modes', async t => {
    const [one, other] = [newShop(t), newShop(t)]
    utimesSync(join(other, 'plugins/cart/src/main.py'), 1, 1)
    chmodSync(join(other, 'plugins/cart/src/main.py'), 0o666)
    chmodSync(join(other, 'plugins/cart'), 0o777)
    const facts = { builtAt: BUILT_AT, random: SAME_BYTES }
    const [first, second] = await Promise.all([one, other].map(source => sealShop(t, { ...facts, source })))
    assert.deepEqual(first?.release, second?.release)
    assert.ok(second && first?.bytes.equals(second.bytes))
  })

  it('has a new key and nonce every time', async t => {
    const [first, second] = [await sealShop(t), await sealShop(t)]
    assert.notEqual(first.release.dek, second.release.dek)
    assert.notDeepEqual(first.bytes.subarray(0, 12), second.bytes.subarray(0, 12))
  })

  it('keeps long names, the executable bit, empty folders and symlinks', async t => {
    const long = `${'deep/'.repeat(30)}${'x'.repeat(200)}`
    const source = newShop(t, { [`plugins/cart/${long}`]: 'long', 'plugins/cart/tool': 'tool' })
    chmodSync(join(source, 'plugins/cart/tool'), 0o700)
    mkdirSync(join(source, 'plugins/cart/empty'))
    symlinkSync('src', join(source, 'plugins/cart/link'))
    const folder = extractTar(t, openSealed(await sealShop(t, { source })))
    assert.equal(readFileSync(join(folder, 'plugins/cart', long), 'utf8'), 'long')
    assert.equal(lstatSync(join(folder, 'plugins/cart/tool')).mode & 0o777, 0o755)
    assert.ok(lstatSync(join(folder, 'plugins/cart/empty')).isDirectory())
    assert.equal(readFileSync(join(folder, 'plugins/cart/link/main.py'), 'utf8'), SHOP['plugins/cart/src/main.py'])
  })

  it('is one zstd frame whose header declares the size of the tar, whatever names and sizes it contains', async t => {
    const long = `${'deep/'.repeat(30)}${'é'.repeat(60)}`
    const sizes = [0, 1, 511, 512, 513, 3_000_000]
    const files = Object.fromEntries(sizes.map(size => [`plugins/cart/${size}.bin`, 'x'.repeat(size)]))
    const source = newShop(t, { ...files, [`plugins/cart/${long}`]: 'long', 'plugins/cart/ß.txt': 'short' })
    mkdirSync(join(source, 'plugins/cart/empty'))
    symlinkSync(long, join(source, 'plugins/cart/link'))
    const sealed = await sealShop(t, { source })
    const frames = parseZstdFrames(decryptSealed(sealed))
    assert.deepEqual(
      frames.map(({ contentBytes }) => contentBytes),
      [openSealed(sealed).length],
    )
  })

  it('takes the plugins from a folder with a different name', async t => {
    const files = Object.entries(SHOP).map(([path, content]) => [path.replace(/^plugins/, 'host/addons'), content])
    const source = newFolder(t, Object.fromEntries(files))
    const sealed = await sealShop(t, { source, pluginsDirname: 'host/addons' })
    assert.equal(sealed.manifest.plugins_dirname, 'host/addons')
    assert.ok(listTar(openSealed(sealed)).some(line => line.endsWith('addons/cart/plugin.yaml')))
  })

  it('leaves the source folder unchanged, and needs no write permission', async t => {
    const source = newShop(t, { '.git/HEAD': 'ref', 'plugins/cart/.env': 'S=1' })
    const folders = ['plugins/cart/src', 'plugins/cart', 'plugins', 'deployment', '.']
    for (const folder of folders) chmodSync(join(source, folder), 0o555)
    const before = describeTree(source)
    await sealShop(t, { source })
    assert.deepEqual(describeTree(source), before)
    for (const folder of folders) chmodSync(join(source, folder), 0o755)
  })
})

describe('sealing', () => {
  it('accepts a plan with steps for an extension', async t => {
    const steps = [
      '{id: mailer, action: install_extension, extension: mailer}',
      '{id: env, action: write_env, plugin: mailer, from: extensions/mailer/.env.template, depends_on: [mailer]}',
      '{id: up, action: restart, plugin: mailer, depends_on: [env]}',
    ]
    const plan = `${PLAN_HEAD}steps: [${steps.join(', ')}]\n`
    await sealShop(t, {}, { 'extensions/mailer/.env.template': 'A=\n', 'deployment/install.yaml': plan })
  })

  for (const path of [
    '.env',
    '.ENV',
    'prod.env',
    '.env.local',
    '.env.production',
    'settings.env.local',
    '.envrc',
    'server.pem',
    'server.key',
    'id_rsa',
    'ID_RSA',
    'id_ed25519.pub',
    'store.p12',
    'store.pfx',
    '.git/HEAD',
    '.hg/x',
    '.svn/x',
    'node_modules/x/index.js',
    'src/__pycache__/main.pyc',
    'src/main.pyc',
    '.venv/x',
    'venv/x',
    '.mypy_cache/x',
    '.pytest_cache/x',
    '.DS_Store',
    '.ssh/config',
    '.aws/credentials',
    '.npmrc',
    '.netrc',
    '.git-credentials',
  ]) {
    it(`leaves out and lists ${path}`, async t => {
      const sealed = await sealShop(t, {}, { [`plugins/cart/${path}`]: 'secret' })
      assert.equal(sealed.leftOut.length, 1)
      assert.ok(`plugins/cart/${path}`.startsWith(sealed.leftOut[0] ?? '-'))
      assert.equal(openSealed(sealed).includes('secret'), false)
    })
  }

  for (const path of [
    '.env.template',
    '.env.example',
    'prod.env.sample',
    'env.py',
    '.gitignore',
    'keys.py',
    'key',
    'x.env.ts',
  ]) {
    it(`keeps ${path}`, async t => {
      const sealed = await sealShop(t, {}, { [`plugins/cart/${path}`]: 'kept' })
      assert.deepEqual(sealed.leftOut, [])
      assert.ok(openSealed(sealed).includes('kept'))
    })
  }

  it("leaves out and lists files outside the project's folders", async t => {
    const others = [
      'README.md',
      'manifest.json',
      'plugins/_shared/x',
      'plugins/README.md',
      'deployment/notes',
      'tests/x',
    ]
    const sealed = await sealShop(t, {}, Object.fromEntries(others.map(path => [path, 'x'])))
    const expected = ['README.md', 'deployment/notes', 'manifest.json', 'plugins/README.md', 'plugins/_shared', 'tests']
    assert.deepEqual([...sealed.leftOut].sort(), expected)
  })

  it('removes its temporary file', async t => {
    const [source, temporary] = [newShop(t), newFolder(t)]
    const before = process.env['TMPDIR']
    process.env['TMPDIR'] = temporary
    t.after(() => {
      if (before === undefined) delete process.env['TMPDIR']
      else process.env['TMPDIR'] = before
    })
    await sealShop(t, { source })
    assert.deepEqual(readdirSync(temporary), [])
  })
})

describe('the paths in a sealed project', () => {
  it('are sorted component by component, by code points', () => {
    const ordered = ['a', 'a/b', 'a/b/c', 'a/b-c', 'a-b', 'a.txt', 'ab', '\uFF21', '\u{1F600}']
    assert.deepEqual(ordered.toReversed().sort(comparePaths), ordered)
  })
})

/** Everything that sealing could change about each path, except for the access time. */
function describeTree(root: string): unknown[] {
  return readdirSync(root, { recursive: true, encoding: 'utf8' }).map(path => {
    const { mode, size, mtimeMs, ctimeMs, ino } = lstatSync(join(root, path))
    return { path, mode, size, mtimeMs, ctimeMs, ino }
  })
}
