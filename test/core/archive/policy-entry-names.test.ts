import assert from 'node:assert/strict'
import { posix, win32 } from 'node:path'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { comparisonKey } from '../../../src/core/archive/planned-tree.ts'
import { decodeEntryName, decodeTarget, parseEntryName } from '../../../src/core/archive/policy.ts'
import { DeployError } from '../../../src/core/errors.ts'
import { MAX_NAME_BYTES, MAX_PATH_BYTES, MAX_PATH_LEVELS } from '../../../src/core/identifiers.ts'

const PLATFORMS = ['linux', 'darwin', 'win32'] as const

const PIECES = [
  '.',
  '..',
  '...',
  '/',
  '//',
  '\\',
  'a',
  'b ',
  'C:',
  ':',
  '~',
  'NUL',
  '\0',
  '\u0085',
  'é',
  'e\u0301',
  '😀',
  '\ufeff',
]
const nastyNames = fc.oneof(
  fc.array(fc.constantFrom(...PIECES), { maxLength: 12 }).map(pieces => pieces.join('')),
  fc.string({ unit: 'binary' }),
)

function accepted(name: string, platform: NodeJS.Platform): string | undefined {
  try {
    return parseEntryName(name, platform)
  } catch (error) {
    assert.ok(error instanceof DeployError && error.code === 'unsafe_archive')
    return undefined
  }
}

const isUnsafe = { name: 'ArchiveError', code: 'unsafe_archive' }

describe('parseEntryName', () => {
  const KEPT = [
    'a',
    'a/b',
    '.a',
    'a.',
    '...',
    '..a',
    'a..',
    'a b',
    '-rf',
    '~',
    'ü',
    'e\u0301',
    '\ufeffa',
    '日本/😀',
    'ab:c',
    '$(x)',
  ]
  for (const name of KEPT) {
    it(`keeps ${JSON.stringify(name)}`, () => assert.equal(parseEntryName(name, 'linux'), name))
  }

  it('drops one final slash', () => assert.equal(parseEntryName('a/b/', 'linux'), 'a/b'))

  const REFUSED = [
    '',
    '/',
    '//',
    '/a',
    '.',
    '..',
    './a',
    'a/.',
    '../a',
    'a/..',
    'a/../b',
    'a//b',
    'a//',
    'C:',
    'c:a',
    'C:/a',
    '\\a',
    'a\\b',
    'a\0',
    'a\tb',
    '\u007f',
    '\u0080',
    '\ud800',
    'a/\udfff',
  ]
  for (const name of REFUSED) {
    it(`refuses ${JSON.stringify(name)}`, () => assert.throws(() => parseEntryName(name, 'linux'), isUnsafe))
  }

  const WINDOWS = [
    'con',
    'CON.txt',
    'Nul',
    'aux.tar.gz',
    'com0',
    'LPT9',
    'com¹',
    'conin$',
    'nul .txt',
    'a.',
    'a ',
    'a?',
    'a*',
    'a"',
    'a<',
    'a>',
    'a|',
    'ab:c',
    'd/prn/x',
  ]
  for (const name of WINDOWS) {
    it(`refuses ${JSON.stringify(name)} on Windows only`, () => {
      assert.throws(() => parseEntryName(name, 'win32'), isUnsafe)
      assert.equal(parseEntryName(name, 'linux'), name)
    })
  }

  for (const name of ['ab:c', 'd/..namedfork', '..NamedFork/rsrc']) {
    it(`refuses ${name} on macOS only`, () => {
      assert.throws(() => parseEntryName(name, 'darwin'), isUnsafe)
      assert.equal(parseEntryName(name, 'linux'), name)
    })
  }

  for (const name of ['a.b', 'con', 'namedfork'])
    it(`keeps ${name} on macOS`, () => assert.equal(parseEntryName(name, 'darwin'), name))

  for (const name of ['console', 'com10', 'nullable', 'a.con']) {
    it(`keeps ${name} on Windows`, () => assert.equal(parseEntryName(name, 'win32'), name))
  }

  it('accepts a path at each limit and refuses one beyond it', () => {
    const deep = Array.from({ length: MAX_PATH_LEVELS }, () => 'd').join('/')
    const long = `${Array.from({ length: 16 }, () => 'p'.repeat(MAX_NAME_BYTES)).join('/')}`
    assert.equal(Buffer.byteLength(long), MAX_PATH_BYTES - 1)
    for (const name of [deep, long, 'ü'.repeat(127)]) assert.equal(parseEntryName(name, 'linux'), name)
    for (const name of [`${deep}/d`, `${long}/p`, 'ü'.repeat(128)])
      assert.throws(() => parseEntryName(name, 'linux'), isUnsafe)
  })

  it('returns only paths that stay below every folder they are joined to', () => {
    const property = fc.property(nastyNames, fc.constantFrom(...PLATFORMS), (name, platform) => {
      const path = accepted(name, platform)
      if (path === undefined) return
      const { join, isAbsolute } = platform === 'win32' ? win32 : posix
      const root = platform === 'win32' ? 'D:\\root' : '/root'
      assert.equal(isAbsolute(path), false)
      assert.equal(join(root, path), [root, ...path.split('/')].join(platform === 'win32' ? '\\' : '/'))
    })
    fc.assert(property, { numRuns: 5000 })
  })

  it('accepts every path that it returns, unchanged', () => {
    const property = fc.property(nastyNames, fc.constantFrom(...PLATFORMS), (name, platform) => {
      const path = accepted(name, platform)
      if (path !== undefined) assert.equal(parseEntryName(path, platform), path)
    })
    fc.assert(property, { numRuns: 2000 })
  })
})

describe('decodeEntryName', () => {
  it('decodes every text in UTF-8', () => {
    const property = fc.property(fc.string({ unit: 'binary' }), text => {
      assert.equal(decodeEntryName(Buffer.from(text), 'utf-8'), text)
    })
    fc.assert(property)
  })

  it('decodes bytes in only one way: encoding the text returns the same bytes', () => {
    const property = fc.property(fc.uint8Array({ maxLength: 8 }), bytes => {
      let text: string
      try {
        text = decodeEntryName(Buffer.from(bytes), 'utf-8')
      } catch {
        return
      }
      assert.deepEqual([...Buffer.from(text)], [...bytes])
    })
    fc.assert(property, { numRuns: 2000 })
  })

  it('refuses anything but ASCII if UTF-8 is not declared', () => {
    assert.throws(() => decodeEntryName(Buffer.from('é'), 'ascii'), isUnsafe)
    assert.equal(decodeEntryName(Buffer.from('e'), 'ascii'), 'e')
  })
})

describe('decodeTarget', () => {
  it('decodes UTF-8, and refuses other bytes with the name of the symlink', () => {
    assert.equal(decodeTarget(Buffer.from('grün'), 'link'), 'grün')
    assert.throws(() => decodeTarget(Buffer.from([0x61, 0xff]), 'link'), {
      ...isUnsafe,
      message: /^The artifact's entry "link" has a symlink target that is not valid UTF-8, /,
    })
  })
})

describe('comparisonKey', () => {
  it('begins with the key of the parent directory', () => {
    const property = fc.property(
      fc.array(fc.string({ unit: 'grapheme' }), { minLength: 2 }),
      fc.constantFrom(...PLATFORMS),
      (parts, platform) => {
        const path = parts.map(part => part.replaceAll('/', '')).join('/')
        const parent = path.slice(0, path.lastIndexOf('/'))
        assert.ok(`${comparisonKey(path, platform)}`.startsWith(`${comparisonKey(parent, platform)}/`))
      },
    )
    fc.assert(property)
  })
})
