import assert from 'node:assert/strict'
import { createHash, hash } from 'node:crypto'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { type Manifest, parseManifest } from '../../../src/core/content/manifest.ts'
import { type ProjectTree, verifyContent } from '../../../src/core/content/project-content.ts'
import { ArchiveError, ArtifactError } from '../../../src/core/errors.ts'
import { inTreeOrder } from '../../../src/core/trust/tree-digest.ts'
import { plannedSymlinks } from '../archive/plan-listing.ts'
import { manifestWith } from './project-manifest.ts'

type Texts = Record<string, string>

const FILES: Texts = {
  'plugins/cart/plugin.yaml': 'name: cart',
  'plugins/cart/src/main.py': 'print()',
  'extensions/search/run': '#!/bin/sh',
  'deployment/install.yaml': 'steps: []',
  'manifest.json': '{}',
}
const FILES_DIGEST = digestBySpec(without(FILES, 'manifest.json'))

function treeOf(files: Texts, links: Texts = {}): ProjectTree {
  const paths = [...Object.keys(files), ...Object.keys(links)]
  return {
    files: inTreeOrder(Object.entries(files).map(([path, text]) => ({ path, sha256: hash('sha256', text) }))),
    symlinks: plannedSymlinks(Object.keys(files), links),
    directories: [...new Set(paths.flatMap(parentsOf))],
  }
}

function parentsOf(path: string): string[] {
  const parts = path.split('/').slice(0, -1)
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'))
}

/** Computes the digest from its definition, without any of the code under test. */
function digestBySpec(files: Texts): string {
  const keyOf = (path: string) => path.split('/').map(part => Array.from(part, char => char.codePointAt(0) as number))
  const isBefore = (a: string, b: string): number => {
    const [left, right] = [keyOf(a), keyOf(b)]
    for (let i = 0; i < Math.max(left.length, right.length); i++) {
      const [x, y] = [left[i], right[i]]
      if (x === undefined || y === undefined) return x === undefined ? -1 : 1
      for (let j = 0; j < Math.max(x.length, y.length); j++) {
        if (x[j] !== y[j]) return (x[j] ?? -1) - (y[j] ?? -1)
      }
    }
    return 0
  }
  const lines = Object.keys(files)
    .sort(isBefore)
    .map(
      path =>
        `${path}:${createHash('sha256')
          .update(files[path] as string)
          .digest('hex')}`,
    )
  return createHash('sha256').update(lines.join('\n')).digest('hex')
}

function without(files: Texts, path: string): Texts {
  return Object.fromEntries(Object.entries(files).filter(([key]) => key !== path))
}

function manifestOf(content: string, more: object = {}): Manifest {
  return parseManifest(JSON.stringify(manifestWith({ content_sha256: content, ...more })))
}

/** Verifies these files. `linked` contains the files that the symlinks stand for in the digest. */
function verify(files: Texts, links: Texts = {}, linked: Texts = {}, more: object = {}) {
  const digest = digestBySpec({ ...without(files, 'manifest.json'), ...linked })
  return verifyContent(manifestOf(digest, more), treeOf(files, links))
}

function refuses(code: string, act: () => unknown): void {
  assert.throws(act, (error: ArtifactError) => {
    assert.ok(error instanceof ArtifactError)
    assert.equal(error.code, code)
    return true
  })
}

describe('verifyContent', () => {
  it('accepts the files that the digest covers: all except the root manifest.json', () => {
    assert.ok(verifyContent(manifestOf(FILES_DIGEST), treeOf(FILES)))
    assert.ok(verifyContent(manifestOf(FILES_DIGEST), treeOf({ ...FILES, 'manifest.json': 'another' })))
  })

  const changes: Record<string, Texts> = {
    'a changed file': { ...FILES, 'plugins/cart/src/main.py': 'print(1)' },
    'an added file': { ...FILES, 'plugins/cart/evil.py': '' },
    'an added file in the root': { ...FILES, evil: '' },
    'a removed file': without(FILES, 'plugins/cart/src/main.py'),
    'a renamed file': { ...without(FILES, 'extensions/search/run'), 'extensions/search/run2': '#!/bin/sh' },
    'another plan': { ...FILES, 'deployment/install.yaml': 'steps: [1]' },
    'a manifest.json elsewhere': { ...FILES, 'plugins/cart/manifest.json': '{}' },
  }
  for (const [name, files] of Object.entries(changes)) {
    it(`refuses ${name} as content_mismatch`, () => {
      refuses('content_mismatch', () => verifyContent(manifestOf(FILES_DIGEST), treeOf(files)))
    })
  }

  it('counts a symlink to a file with the bytes of its target, and ignores one to a directory', () => {
    const links = { 'plugins/cart/run': 'src/main.py', 'plugins/cart/lib': './src' }
    assert.ok(verify(FILES, links, { 'plugins/cart/run': 'print()' }))
    refuses('content_mismatch', () => verify(FILES, links))
  })

  it('counts a symlink through others with the bytes of the last target, and ignores a dangling one', () => {
    const links = {
      'plugins/cart/lib': 'src',
      'plugins/cart/run': 'lib/main.py',
      'plugins/cart/now': 'run',
      'plugins/cart/later': 'data/db',
    }
    assert.ok(verify(FILES, links, { 'plugins/cart/run': 'print()', 'plugins/cart/now': 'print()' }))
  })

  it('computes the digest that the contract defines, for any files', () => {
    const name = fc.string({
      unit: fc.constantFrom('a', 'b', 'A', '.', '-', 'ä', '\uff21', '\u{1f600}'),
      minLength: 1,
      maxLength: 4,
    })
    const path = fc.array(name, { minLength: 1, maxLength: 3 }).map(parts => `plugins/cart/d/${parts.join('/')}`)
    const files = fc.dictionary(path, fc.string({ maxLength: 5 }), { maxKeys: 12 })
    fc.assert(
      fc.property(files, extra => {
        assert.ok(verify({ ...FILES, ...extra }))
      }),
      { numRuns: 300 },
    )
  })

  const missing: Record<string, Texts> = {
    'a plugin has no directory': without(without(FILES, 'plugins/cart/plugin.yaml'), 'plugins/cart/src/main.py'),
    'an extension has no directory': without(FILES, 'extensions/search/run'),
    'a plugin is a file': {
      ...without(without(FILES, 'plugins/cart/plugin.yaml'), 'plugins/cart/src/main.py'),
      'plugins/cart': 'x',
    },
  }
  for (const [name, files] of Object.entries(missing)) {
    it(`refuses a manifest if ${name}`, () => refuses('invalid_manifest', () => verify(files)))
  }

  it('refuses a plugin that is a symlink to a directory', () => {
    const files = { 'extensions/search/run': '', 'extensions/search/cart/plugin.yaml': '' }
    refuses('invalid_manifest', () => verify(files, { 'plugins/cart': '../extensions/search/cart' }))
  })

  const leaving: Record<string, Texts> = {
    'into another plugin or extension': { 'plugins/cart/x': '../../extensions/search' },
    'into the root': { 'plugins/cart/x': '../../deployment' },
    'and back in by its old name': { 'plugins/cart/src/x': '../../../plugins/cart/src' },
    'out of an extension': { 'extensions/search/x': '..' },
    'through a symlink that another symlink hides': {
      'plugins/cart/src/up': '..',
      'plugins/cart/x': 'src/up/../search',
    },
    'to a missing path': { 'plugins/cart/x': '../other' },
  }
  for (const [name, links] of Object.entries(leaving)) {
    it(`refuses a symlink that leads out of its directory, ${name}`, () => {
      assert.throws(
        () => verify(FILES, links),
        (error: ArchiveError) => error instanceof ArchiveError && error.code === 'unsafe_archive',
      )
    })
  }

  it('accepts symlinks that stay inside, and any symlinks in directories that are never installed', () => {
    const links = { 'plugins/cart/src/up': '..', 'plugins/cart/src/deep/x': '../../src', link: 'plugins' }
    assert.ok(verify(FILES, links))
  })

  it("only warns if a plugin's or extension's own sha256 does not match", () => {
    const cart = { 'plugin.yaml': 'name: cart', 'src/main.py': 'print()' }
    const plugins = [{ id: 'cart', version: '2.0.0', sha256: digestBySpec(cart) }]
    assert.deepEqual(verify(FILES, {}, {}, { plugins, extensions: [{ id: 'search' }] }).warnings, [])
    const { warnings } = verify(FILES)
    assert.equal(warnings.length, 2)
    assert.match(warnings.join(), /plugins\/cart .*extensions\/search /)
  })

  it("counts a symlink inside a plugin in the plugin's own sha256, too", () => {
    const cart = { 'plugin.yaml': 'name: cart', 'src/main.py': 'print()', run: 'print()' }
    const plugins = [{ id: 'cart', version: '2.0.0', sha256: digestBySpec(cart) }]
    const links = { 'plugins/cart/run': 'src/main.py' }
    const more = { plugins, extensions: [{ id: 'search' }] }
    assert.deepEqual(verify(FILES, links, { 'plugins/cart/run': 'print()' }, more).warnings, [])
  })

  it('lists the directories that the manifest does not name', () => {
    const more = { 'plugins/other/x': '', 'extensions/old/y/z': '', 'plugins/README': '', 'docs/a/b': '' }
    assert.deepEqual(verify({ ...FILES, ...more }).unnamed.toSorted(), ['extensions/old', 'plugins/other'])
  })

  it('looks for plugins in the directory that plugins_dirname names', () => {
    const files = {
      'addons/cart/plugin.yaml': '',
      'extensions/search/run': '',
      'plugins/other/x': '',
      'addons/x/y': '',
    }
    assert.deepEqual(verify(files, {}, {}, { plugins_dirname: 'addons' }).unnamed, ['addons/x'])
    refuses('invalid_manifest', () => verify(FILES, {}, {}, { plugins_dirname: 'addons' }))
  })
})
