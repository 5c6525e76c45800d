import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { layoutOf } from '../../../src/install/host/layout.ts'
import {
  findPluginsDirectory,
  type KnownDirectories,
  warnOfOtherDirectory,
} from '../../../src/install/host/plugins-directory.ts'
import { temporaryDirectory } from '../../folders.ts'
import { collectLog } from '../prepared-host.ts'

describe('findPluginsDirectory', () => {
  const read: Record<string, [text: string, directory: string]> = {
    'a plain directory': ['plugins: {directory: app}', 'app'],
    'a leading ./': ['plugins: {directory: ./app}', 'app'],
    'slashes around it': ['plugins:\n  directory: "//app/of/plugins/"', 'app/of/plugins'],
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
