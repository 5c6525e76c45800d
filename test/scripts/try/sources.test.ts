import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { HubError, UsageError } from '../../../hub/errors.ts'
import { type GivenSources, readSources } from '../../../scripts/try/sources.ts'
import { ArtifactError } from '../../../src/core/errors.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'

const EXAMPLES = join(import.meta.dirname, '../../../examples')

const PLAN =
  'format_version: "1"\nproject_id: shop\nversion: 1.0.0\nsteps: [{id: a, action: install_plugin, plugin: a}]\n'

describe('the source in a folder', () => {
  for (const [name, expected, given] of [
    [
      'is a plugin with the name and version of its plugin.yaml',
      { kind: 'plugin', slug: 'greeter', ownSlug: 'greeter', isSigned: true, versionFile: 'plugin.yaml' },
      { slug: 'hello', version: '1.0.0' },
    ],
    [
      'is a service if it has a program at its root, and no plugin.yaml',
      { kind: 'service', slug: 'service', ownSlug: undefined, isSigned: false, versionFile: undefined },
      { slug: 'clock', version: '2.0.0' },
    ],
    [
      'is a project if it has a plan, which names its id',
      {
        kind: 'project',
        slug: 'prj_ShopExample01',
        pluginsDirname: 'plugins',
        isSigned: true,
        versionFile: undefined,
      },
      { kind: 'project', version: '1.1.0-rc.1' },
    ],
  ] as const)
    it(name, () => {
      const folder = join(EXAMPLES, expected.kind)
      const found = { folder, version: '1.0.0', ...expected }
      assert.deepEqual(readSources(folder, {}), found)
      assert.deepEqual(readSources(folder, given), { ...found, ...given })
    })

  it('has the version of an option if plugin.yaml has none', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { 'plugin.yaml': 'name: a\n' })
    const { version, versionFile } = readSources(folder, { version: '2.0.0' })
    assert.deepEqual([version, versionFile], ['2.0.0', undefined])
  })

  it('has a slug that is made from its name, and is refused if the name has no ASCII letter or digit', t => {
    const folder = join(temporaryDirectory(t), 'My Plugin!')
    const slugFor = (name: string): string => {
      writeTree(folder, { 'plugin.yaml': `${name}version: "1"\n` })
      return readSources(folder, {}).slug
    }
    assert.equal(slugFor(''), 'my-plugin')
    assert.equal(slugFor('name: ".. Ünïcode_Plugin v2"\n'), 'n-code_plugin-v2')
    assert.throws(() => slugFor('name: "插件"\n'), UsageError)
  })

  const refused: Readonly<Record<string, [Readonly<Record<string, string>>, RegExp]>> = {
    'is not a plugin and has no program': [
      { 'a.txt': '' },
      /has no plugin\.yaml: add one with the lines "name: .*--kind service/,
    ],
    'spells plugin.yaml in another way': [{ 'plugin.yml': '' }, /plugin\.yml must be named plugin\.yaml/],
    'has no version': [
      { 'plugin.yaml': 'name: a\n' },
      /plugin\.yaml has no version: add the line 'version: "1\.0\.0"'/,
    ],
    'has wrong YAML': [
      { 'plugin.yaml': 'name: a\nversion: [1\n' },
      /plugin\.yaml:3 is not one valid YAML document \(.*\): correct it/,
    ],
    'is empty': [
      { 'plugin.yaml': '' },
      /plugin\.yaml does not consist of lines "key: value", such as "version: 1\.0\.0": correct it/,
    ],
    'has a version of the wrong type': [
      { 'plugin.yaml': 'version: [1]\n' },
      /plugin\.yaml has a value at version that is not text for every YAML parser, .* \(quote it\): correct it and try again\.$/,
    ],
    'has an environment of the wrong type': [
      { 'plugin.yaml': 'version: 1.0.0\nenvironment: [A]\n' },
      /has an unexpected environment \(environment must be a map with the lists "required" and "optional" of names\)/,
    ],
    'has an oversized plugin.yaml': [{ 'plugin.yaml': `#${'x'.repeat(40_000)}\n` }, /must be at most 32768 bytes/],
  }
  for (const [what, [files, message]] of Object.entries(refused)) {
    it(`is refused in one sentence if it ${what}`, t => {
      const folder = temporaryDirectory(t)
      writeTree(folder, files)
      assert.throws(() => readSources(folder, {}), expectSentence(ArtifactError, message))
    })
  }

  it('is refused if its plugin.yaml is a folder or leads elsewhere', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { 'secret.yaml': 'name: secret\nversion: "1"\n', 'b/a': '' })
    symlinkSync('../secret.yaml', join(folder, 'b/plugin.yaml'))
    mkdirSync(join(folder, 'c/plugin.yaml'), { recursive: true })
    for (const name of ['b', 'c'])
      assert.throws(
        () => readSources(join(folder, name), {}),
        expectSentence(ArtifactError, /must be a file in this folder/),
      )
  })

  it('needs no key of the host if no plugin of the project needs a signature', t => {
    const unsigned = temporaryDirectory(t)
    const plan = PLAN
    writeTree(unsigned, { 'deployment/install.yaml': plan, 'plugins/a/plugin.yaml': '[', 'plugins/b': '' })
    assert.equal(readSources(unsigned, {}).isSigned, false)
  })

  it('has its plugins in another folder if an option names it', t => {
    const folder = temporaryDirectory(t)
    const files = { 'plugin.yaml': 'name: a\nversion: "1"\nexecution_mode: trusted\nentry_point: main.py\n' }
    writeTree(folder, { 'deployment/install.yaml': PLAN })
    writeTree(join(folder, 'src/modules/a'), files)
    assert.equal(readSources(folder, {}).isSigned, false)
    assert.deepEqual(readSources(folder, { 'plugins-dirname': 'src/modules' }), {
      kind: 'project',
      slug: 'shop',
      folder,
      version: '1.0.0',
      pluginsDirname: 'src/modules',
      versionFile: undefined,
      isSigned: true,
    })
    for (const [place, named, message] of [
      [
        folder,
        '../modules',
        /^The option --plugins-dirname must be at most 255 characters: folder names of .*, not "\.\.\/modules": correct it\.$/,
      ],
      [
        join(folder, 'src/modules/a'),
        'src',
        /^The option --plugins-dirname applies to a project, but this is a plugin: /,
      ],
    ] as const)
      assert.throws(() => readSources(place, { 'plugins-dirname': named }), expectSentence(UsageError, message))
  })

  it('is a plugin if it has a plugin.yaml, even next to a plan of a project', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { 'plugin.yaml': 'name: a\nversion: "1.10"\n', 'deployment/install.yaml': '' })
    const { kind, version } = readSources(folder, {})
    assert.deepEqual([kind, version], ['plugin', '1.10'])
    assert.throws(
      () => readSources(folder, { kind: 'service' }),
      expectSentence(UsageError, /has a plugin\.yaml, so it/),
    )
  })

  it('is refused as a project whose plan is missing or cannot be used, or with options for a plugin', t => {
    const folder = temporaryDirectory(t)
    const plan = 'deployment/install.yaml'
    const rows: readonly (readonly [string | undefined, GivenSources, typeof UsageError | typeof HubError, RegExp])[] =
      [
        [
          undefined,
          { kind: 'project' },
          UsageError,
          /has no file deployment\/install\.yaml: add this plan if it is a project; otherwise, name another kind/,
        ],
        ['steps: [\n', {}, HubError, /^deployment\/install\.yaml, line 2, column 1: invalid YAML/],
        ['steps: []\n', {}, HubError, /^deployment\/install\.yaml: .*project_id: is missing/],
        [
          'project_id: a/b\nsteps: []\n',
          {},
          HubError,
          /^deployment\/install\.yaml: .*project_id: must be 1 to 128 characters /,
        ],
        [PLAN, { slug: 'shop' }, UsageError, /--slug does not apply to a project/],
        [PLAN, { version: '1' }, UsageError, /--version must be a semantic version, .*, not "1": correct it\.$/],
      ]
    for (const [text, given, type, message] of rows) {
      if (text !== undefined) writeTree(folder, { [plan]: text })
      assert.throws(
        () => readSources(folder, given),
        error => error instanceof type && message.test(error.message) && !error.message.includes('\n'),
      )
    }
  })

  it('is refused with options that do not fit it', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { run: '' })
    chmodSync(join(folder, 'run'), 0o755)
    for (const [given, message] of [
      [{ kind: 'app' }, /--kind must be plugin, service or project/],
      [{ slug: '../up' }, /--slug must be/],
    ] as const)
      assert.throws(() => readSources(folder, given), expectSentence(UsageError, message))
    const changed = { version: '2.0.0' }
    assert.throws(
      () => readSources(join(EXAMPLES, 'plugin'), changed),
      expectSentence(UsageError, /says version 1\.0\.0, but --version says 2\.0\.0: remove --version/),
    )
    assert.throws(() => readSources(join(folder, 'none'), {}), expectSentence(UsageError, /There is no folder/))
    assert.throws(
      () => readSources(join(folder, 'run'), {}),
      expectSentence(UsageError, /run is not a folder: name the/),
    )
  })
})

function expectSentence(type: typeof ArtifactError | typeof UsageError, message: RegExp) {
  return (error: unknown): boolean => {
    assert.ok(error instanceof type, String(error))
    assert.match(error.message, message)
    assert.match(error.message, /^[^\n]+\.$/)
    return true
  }
}
