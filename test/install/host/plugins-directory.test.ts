import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { layoutOf } from '../../../src/install/host/layout.ts'
import {
  findPluginsDirectory,
  type KnownDirectories,
  refuseOutsideDirectory,
  warnOfOtherDirectory,
} from '../../../src/install/host/plugins-directory.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'
import { collectLog } from '../prepared-host.ts'

describe('findPluginsDirectory', () => {
  const read: Record<string, [text: string, directory: string]> = {
    'a plain directory': ['plugins: {directory: app}', 'app'],
    'a leading ./': ['plugins: {directory: ./app}', 'app'],
    'slashes after it': ['plugins:\n  directory: "app/of/plugins//"', 'app/of/plugins'],
    'a byte order mark': ['\ufeffplugins: {directory: app}', 'app'],
    'no directory': ['plugins: {paths: [app]}', 'plugins'],
    'nothing about plugins': ['name: host\nplugins:\n', 'plugins'],
    'an empty file': ['', 'plugins'],
  }
  for (const [name, [text, directory]] of Object.entries(read)) {
    it(`reads ${name} in integration.yaml`, t => {
      const { find, log } = hostWith(t, root => writeFileSync(join(root, 'integration.yaml'), text))
      assert.deepEqual(find(), { directory, isOperators: false })
      assert.deepEqual(log.lines, [])
    })
  }

  for (const [name, written] of Object.entries({
    'integration.json': '{"plugins":\n\t{"directory": "./app"}}',
    'config/integration.yaml': 'plugins: {directory: ./app}',
    'config/integration.json': '{"plugins": {"directory": "app/"}}',
  })) {
    it(`reads ${name}, and counts its path from the project root`, t => {
      const { find, log } = hostWith(t, root => writeTree(root, { [name]: written }))
      assert.deepEqual(find(), { directory: 'app', isOperators: false })
      assert.deepEqual(log.lines, [])
    })
  }

  it('reads only the first file that exists, as the host framework does', t => {
    const files = { 'integration.json': '{"plugins": {"directory": "b"}}', 'config/integration.yaml': 'plugins: [x]' }
    const { find, layout, log } = hostWith(t, root => writeTree(root, files))
    assert.deepEqual(find().directory, 'b')
    writeTree(layout.root, { 'integration.yaml': 'name: host\n' })
    assert.deepEqual(find().directory, 'plugins')
    assert.deepEqual(log.lines, [])
  })

  it('quotes nothing from a file that is not JSON', t => {
    const { find, log } = hostWith(t, root => writeTree(root, { 'integration.json': '{"key": geheim' }))
    assert.deepEqual(find({ recorded: 'app' }).directory, 'app')
    assert.match(log.lines.join(), /integration\.json is not valid JSON\. This run uses app/)
    assert.doesNotMatch(log.lines.join(), /geheim/)
  })

  const absolute: Record<string, (root: string) => string> = {
    'an absolute path below the root': root => `${root}/app/of/plugins`,
    'an absolute path with stray slashes': root => `/${root}//app/./of/plugins/`,
    'an absolute path below the root by another name': root => {
      symlinkSync(root, `${root}-link`)
      return `${root}-link/app/of/plugins`
    },
  }
  for (const [name, path] of Object.entries(absolute)) {
    it(`reads ${name} as that directory`, t => {
      const { find, layout, log } = hostWith(t, root =>
        writeTree(root, { 'site/integration.yaml': `plugins: {directory: "${path(join(root, 'site'))}"}` }),
      )
      const site = layoutOf(join(layout.root, 'site'))
      const known = { input: undefined, recorded: undefined, otherwise: 'plugins' }
      assert.deepEqual(findPluginsDirectory(site, known, log).directory, 'app/of/plugins')
      refuseOutsideDirectory(site, 'Correct it')
      assert.deepEqual(log.lines, [])
      assert.equal(find().directory, 'plugins')
    })
  }

  it('accepts an absolute path outside the root that plugins leads to', t => {
    const other = temporaryDirectory(t)
    const { find, layout } = hostWith(t, root => {
      symlinkSync(other, join(root, 'plugins'))
      writeFileSync(join(root, 'integration.yaml'), `plugins: {directory: ${other}}`)
    })
    assert.deepEqual(find(), { directory: 'plugins', isOperators: false })
    refuseOutsideDirectory(layout, 'Correct it')
  })

  it('refuses an absolute path outside the root, unless the operator names a directory', t => {
    const other = temporaryDirectory(t)
    const { find, layout, log } = hostWith(t, root => {
      symlinkSync(other, join(root, 'app'))
      writeFileSync(join(root, 'integration.yaml'), `plugins: {directory: ${other}/}`)
    })
    assert.throws(() => refuseOutsideDirectory(layout, 'Correct it'), {
      code: 'invalid_input',
      message: /integration\.yaml says that the host loads plugins from ".*\/", which is outside project-root\./,
    })
    assert.deepEqual(find({ input: 'app' }), { directory: 'app', isOperators: true })
    assert.deepEqual(log.lines, [])
    assert.deepEqual(find({ input: 'lib' }), { directory: 'lib', isOperators: true })
    assert.match(log.lines.join(), /^warning plugins-directory is lib, but .* loads plugins from \//)
  })

  it('keeps a plugin that is rolled back in its directory, with a warning, if the host names one outside the root', t => {
    const { find, log } = hostWith(t, root => writeTree(root, { 'integration.yaml': 'plugins: {directory: /srv/p}' }))
    assert.deepEqual(find({ recorded: 'app' }), { directory: 'app', isOperators: false })
    assert.match(log.lines.join(), /^warning .*which is outside project-root\. This run uses app/)
  })

  const unusable: Record<string, string | ((path: string) => void)> = {
    'a path that leaves the root': 'plugins: {directory: ../app}',
    'a path that leaves the root further down': 'plugins: {directory: app/../../x}',
    'the root itself': 'plugins: {directory: ./}',
    'the directory of extensions': 'plugins: {directory: ./extensions}',
    'a directory of this action': 'plugins: {directory: .hub-deploy/staging}',
    'a name with a line break': 'plugins: {directory: "a\\nb"}',
    'a name that is too long': `plugins: {directory: ${'a'.repeat(256)}}`,
    'a list': 'plugins: {directory: [app]}',
    'a number': 'plugins: {directory: 7}',
    'plugins that are not a map': 'plugins: [app]',
    'a file that is not a map': '- app',
    'a file that is not YAML': '{[',
    'a repeated key': 'plugins: {directory: app}\nplugins: {directory: data}',
    'a merge key': 'base: &b {directory: app}\nplugins: {<<: *b}',
    'more than 100 aliases': `a: &a [x]\nb: [${'*a, '.repeat(101)}]\nplugins: {directory: app}`,
    'an alias bomb of few aliases':
      'a: &a [x, x]\nb: &b [*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c]\nplugins: {directory: app}\n',
    'more than 32 KiB': `plugins: {directory: app}\n#${'x'.repeat(32 * 1024)}`,
    'text that is not UTF-8': path => writeFileSync(path, Buffer.from([0x61, 0x3a, 0xff])),
    'a symlink': path => symlinkSync('/etc/passwd', path),
    'a directory': path => mkdirSync(path),
    'a pipe': path => execFileSync('mkfifo', [path]),
  }
  for (const [name, put] of Object.entries(unusable)) {
    it(`leaves a plugin where it is, with a warning, for ${name}`, t => {
      const { find, log } = hostWith(t, root => {
        const path = join(root, 'integration.yaml')
        if (typeof put === 'string') writeFileSync(path, put)
        else put(path)
      })
      assert.deepEqual(find({ recorded: 'app' }), { directory: 'app', isOperators: false })
      assert.deepEqual(find(), { directory: 'plugins', isOperators: false })
      assert.match(log.lines.join('\n'), /^(warning .*integration\.yaml .*\n?){2}$/)
    })
  }

  it('warns of a host that loads plugins from a directory other than the one that the input names', t => {
    const { find, log } = hostWith(t, root =>
      writeFileSync(join(root, 'integration.yaml'), 'plugins: {directory: app}'),
    )
    assert.deepEqual(find({ input: 'app' }), { directory: 'app', isOperators: true })
    assert.deepEqual(log.lines, [])
    assert.deepEqual(find({ input: 'other' }), { directory: 'other', isOperators: true })
    assert.match(log.lines.join('\n'), /^warning plugins-directory is other, but .* from app: correct one/)
  })

  it('prefers the input to a file that cannot be used', t => {
    const { find, log } = hostWith(t, root => mkdirSync(join(root, 'integration.yaml')))
    assert.deepEqual(find({ input: 'app', recorded: 'plugins' }), { directory: 'app', isOperators: true })
    assert.deepEqual(log.lines, [])
  })

  it('returns the given directory on a host without integration.yaml', t => {
    const { find } = hostWith(t, () => {})
    for (const otherwise of ['plugins', 'app'])
      assert.deepEqual(find({ recorded: 'app', otherwise }), { directory: otherwise, isOperators: false })
  })

  it('returns the recorded name of the same directory', t => {
    const { find } = hostWith(t, root => {
      mkdirSync(join(root, 'plugins'))
      symlinkSync('plugins', join(root, 'app'))
    })
    assert.deepEqual(find({ input: 'app', recorded: 'plugins' }), { directory: 'plugins', isOperators: true })
    assert.deepEqual(find({ input: 'app', recorded: 'other' }), { directory: 'app', isOperators: true })
  })
})

describe('warnOfOtherDirectory', () => {
  it('warns of a host that loads plugins from elsewhere, and of no other', t => {
    const { layout, log } = hostWith(t, root =>
      writeFileSync(join(root, 'integration.yaml'), 'plugins: {directory: app}'),
    )
    warnOfOtherDirectory(layout, 'app', log)
    assert.deepEqual(log.lines, [])
    warnOfOtherDirectory(layout, 'plugins', log)
    assert.match(log.lines.join('\n'), /^warning .*in plugins, but .*integration\.yaml says .* from app/)
  })
})

function hostWith(t: Parameters<typeof temporaryDirectory>[0], prepare: (root: string) => void) {
  const layout = layoutOf(temporaryDirectory(t))
  prepare(layout.root)
  const log = collectLog()
  const find = ({ input, recorded, otherwise = 'plugins' }: Partial<KnownDirectories> = {}) =>
    findPluginsDirectory(layout, { input, recorded, otherwise }, log)
  return { layout, log, find }
}
