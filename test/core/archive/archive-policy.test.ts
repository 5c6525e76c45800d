import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import type { ArchiveEntry } from '../../../src/core/archive/archive-entry.ts'
import { verifyDeclaredSizes, verifyRatio } from '../../../src/core/archive/archive-limits.ts'
import { planExtraction } from '../../../src/core/archive/archive-policy.ts'
import { MAX_COMPRESSION_RATIO, MAX_PATH_BYTES, RATIO_APPLIES_ABOVE_BYTES } from '../../../src/core/limits.ts'

const LIMITS = { maxExtractedBytes: 100 * RATIO_APPLIES_ABOVE_BYTES, maxEntries: 100 }
const RULES = { ...LIMITS, platform: 'linux', shape: 'flattened' } as const

function entry(name: string, more: Partial<ArchiveEntry> = {}): ArchiveEntry {
  const type = name.endsWith('/') ? 'directory' : 'file'
  return { name, type, size: 0, packedSize: 0, executable: false, target: null, ...more }
}

function symlink(name: string, target: string): ArchiveEntry {
  return entry(name, { type: 'symlink', size: target.length, packedSize: target.length, target })
}

function pathsOf(entries: ArchiveEntry[], platform: NodeJS.Platform = 'linux'): string[] {
  const plan = planExtraction(entries, { ...RULES, platform })
  return [...plan.directories.map(path => `${path}/`), ...plan.files.map(({ path }) => path)]
}

const isUnsafe = { name: 'ArchiveError', code: 'unsafe_archive' }
const isTooLarge = { name: 'ArchiveError', code: 'archive_too_large' }

describe('planExtraction', () => {
  it('names the entry and the rule, cleaned', () => {
    const hostile = entry('a/../\u001b[2J::set-output')
    assert.throws(
      () => planExtraction([hostile], RULES),
      (error: Error) => {
        assert.equal(error.message.includes('\u001b') || error.message.includes('::'), false)
        return /set-output/.test(error.message) && isUnsafe.code === (error as Error & { code: string }).code
      },
    )
  })

  it('accepts directories without a final slash', () => {
    assert.deepEqual(pathsOf([entry('d', { type: 'directory' }), entry('d/a'), entry('b')]), ['d/', 'd/a', 'b'])
  })

  for (const type of ['hard link', 'character device', 'block device', 'fifo', 'socket', 'unknown type'] as const) {
    it(`refuses a ${type}`, () => {
      assert.throws(() => planExtraction([entry('x', { type })], RULES), isUnsafe)
    })
  }

  it('lists every parent directory once, before its children', () => {
    assert.deepEqual(pathsOf([entry('a/b/c/x'), entry('a/b/'), entry('a/y'), entry('z')]), [
      'a/',
      'a/b/',
      'a/b/c/',
      'a/b/c/x',
      'a/y',
      'z',
    ])
  })

  it('does not flatten directories that differ in spelling', () => {
    assert.throws(() => pathsOf([entry('Top/a'), entry('top/b')], 'darwin'), isUnsafe)
    assert.deepEqual(pathsOf([entry('Top/a'), entry('top/b')]), ['Top/', 'top/', 'Top/a', 'top/b'])
  })

  it('flattens no top-level symlink or file', () => {
    assert.equal(planExtraction([entry('top/a'), symlink('l', 'top')], RULES).flattened, null)
    assert.equal(planExtraction([entry('a')], RULES).flattened, null)
  })

  it('counts implied directories, which names alone can multiply', () => {
    const deep = (count: number) => [entry('x'), entry(`${Array.from({ length: count }, () => 'd').join('/')}/a`)]
    assert.equal(planExtraction(deep(3), { ...RULES, maxEntries: 3 }).directories.length, 3)
    assert.throws(() => planExtraction(deep(4), { ...RULES, maxEntries: 3 }), isTooLarge)
  })

  it('plans no path twice, and each below a planned directory, for any listing', () => {
    const names = fc
      .array(fc.constantFrom('a', 'b', 'A', 'é', 'e\u0301'), { minLength: 1, maxLength: 4 })
      .map(parts => parts.join('/'))
    const property = fc.property(
      fc.array(names, { maxLength: 6 }),
      fc.constantFrom('linux', 'darwin', 'win32'),
      (listing, platform) => {
        const planned = plannedOrRefused(
          listing.map(name => entry(name)),
          platform,
        )
        const keys = planned.map(path =>
          (platform === 'linux' ? path : path.toLowerCase()).replace(/\/$/, '').normalize('NFC'),
        )
        assert.equal(new Set(keys).size, keys.length)
        for (const path of planned) assert.ok(!path.includes('/', 1) || planned.includes(parentOf(path)), path)
      },
    )
    fc.assert(property, { numRuns: 2000 })
  })
})

function plannedOrRefused(entries: ArchiveEntry[], platform: NodeJS.Platform): string[] {
  try {
    return pathsOf(entries, platform)
  } catch {
    return []
  }
}

function parentOf(path: string): string {
  const parts = path.replace(/\/$/, '').split('/')
  return parts.length === 1 ? path : `${parts.slice(0, -1).join('/')}/`
}

describe('verifyDeclaredSizes', () => {
  const above = RATIO_APPLIES_ABOVE_BYTES + 1
  const atRatio = Math.ceil(above / MAX_COMPRESSION_RATIO)

  it('accepts exactly the limits', () => {
    const limits = { maxExtractedBytes: above, maxEntries: 2 }
    verifyDeclaredSizes([entry('a', { size: above, packedSize: atRatio }), entry('b')], limits)
    verifyDeclaredSizes([symlink('l', 'x'.repeat(MAX_PATH_BYTES))], { ...limits, maxExtractedBytes: MAX_PATH_BYTES })
  })

  const REFUSED: [string, ArchiveEntry[], object][] = [
    ['one byte too many', [entry('a', { size: 60 }), entry('b', { size: 41 })], isTooLarge],
    ['one entry too many', [entry('a'), entry('b'), entry('c'), entry('d')], isTooLarge],
    [
      'an entry beyond the ratio',
      [entry('a', { size: above, packedSize: atRatio - 1 }), entry('b', { packedSize: above })],
      isUnsafe,
    ],
    [
      'entries beyond the ratio together',
      [entry('a', { size: above / 2, packedSize: 1 }), entry('b', { size: above / 2, packedSize: 1 })],
      isUnsafe,
    ],
    ['a symlink with a huge target', [symlink('l', 'x'.repeat(MAX_PATH_BYTES + 1))], isUnsafe],
  ]
  for (const [what, entries, expected] of REFUSED) {
    it(`refuses ${what}`, () => {
      const maxExtractedBytes = expected === isTooLarge ? 100 : LIMITS.maxExtractedBytes
      assert.throws(() => verifyDeclaredSizes(entries, { maxExtractedBytes, maxEntries: 3 }), expected)
    })
  }

  it('checks only the ratio of the whole where entries are packed together', () => {
    verifyDeclaredSizes([entry('a', { size: above, packedSize: null })], LIMITS)
    assert.throws(() => verifyRatio(above, atRatio - 1), isUnsafe)
  })
})
