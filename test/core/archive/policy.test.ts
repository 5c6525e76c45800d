import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import type { ArchiveEntry } from '../../../src/core/archive/planned-tree.ts'
import { ArchiveListing } from '../../../src/core/archive/policy.ts'
import { MAX_PATH_BYTES, MAX_PATH_LEVELS } from '../../../src/core/identifiers.ts'
import { inTreeOrder } from '../../../src/core/trust/tree-digest.ts'
import {
  listedEntry as entry,
  listedEntry,
  listedSymlink,
  planListing,
  listedSymlink as symlink,
} from './plan-listing.ts'

const LIMITS = { maxExtractedBytes: 100 * 1024 * 1024, maxEntries: 100 }
const RULES = { ...LIMITS, platform: 'linux', shape: 'flattened' } as const

function pathsOf(entries: ArchiveEntry[], platform: NodeJS.Platform = 'linux'): string[] {
  const plan = planListing(entries, { ...RULES, platform })
  return [...plan.directories.map(path => `${path}/`), ...Array.from(plan.files, ({ path }) => path)]
}

const isUnsafe = { name: 'ArchiveError', code: 'unsafe_archive' }
const isTooLarge = { name: 'ArchiveError', code: 'archive_too_large' }

describe('ArchiveListing', () => {
  it('cleans the name of the entry that its message quotes', () => {
    const hostile = entry('a/../\u001b[2J::set-output')
    assert.throws(
      () => planListing([hostile], RULES),
      (error: Error) => {
        assert.equal(error.message.includes('\u001b'), false)
        return /set-output/.test(error.message) && isUnsafe.code === (error as Error & { code: string }).code
      },
    )
  })

  it('accepts directories without a final slash', () => {
    assert.deepEqual(pathsOf([entry('d', { type: 'directory' }), entry('d/a'), entry('b')]), ['d/', 'b', 'd/a'])
  })

  it('accepts a directory with no data, compressed or not, and no other', () => {
    const packed = (packedSize: number) => pathsOf([entry('d/', { packedSize }), entry('b')])
    for (const packedSize of [0, 2]) assert.deepEqual(packed(packedSize), ['d/', 'b'])
    assert.throws(() => packed(3), isUnsafe)
  })

  for (const type of ['hard link', 'character device', 'block device', 'fifo', 'socket', 'unknown type'] as const) {
    it(`refuses this type of entry: ${type}`, () => {
      assert.throws(() => planListing([entry('x', { type })], RULES), isUnsafe)
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

  it('does not flatten a top-level symlink or file', () => {
    assert.equal(planListing([entry('top/a'), symlink('l', 'top')], RULES).flattened, null)
    assert.equal(planListing([entry('a')], RULES).flattened, null)
  })

  it('counts implied directories, which names alone can multiply', () => {
    const deep = (count: number) => [entry('x'), entry(`${Array.from({ length: count }, () => 'd').join('/')}/a`)]
    assert.equal(planListing(deep(3), { ...RULES, maxEntries: 5 }).directories.length, 3)
    assert.throws(() => planListing(deep(4), { ...RULES, maxEntries: 5 }), isTooLarge)
  })

  it('plans no path twice, and each path below a planned directory, for any listing', () => {
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

describe('planning a listing', () => {
  it('pauses after each file and each symlink, so that a cancel is noticed', () => {
    const listing = new ArchiveListing({ ...RULES, maxEntries: 500 })
    const files = Array.from({ length: 200 }, (_, index) => entry(`f${index}`))
    const symlinks = Array.from({ length: 200 }, (_, index) => symlink(`l${index}`, 'f0'))
    for (const one of [...files, ...symlinks]) listing.add(one)
    assert.ok([...listing.plan()].length >= 400)
  })

  it('orders files as the tree digest does, component by component', () => {
    const names = ['a.txt', 'a/b', 'a-b', 'a/a/z', '\uff21', '\u{1f600}', 'B']
    const { files } = planListing(
      names.map(name => entry(name)),
      RULES,
    )
    assert.deepEqual([...files], inTreeOrder([...files]))
  })
})

describe('the limits of a listing', () => {
  const small = { ...RULES, maxExtractedBytes: 100, maxEntries: 3 }

  it('accept a listing that exactly reaches them', () => {
    planListing([entry('a', { size: 60 }), entry('b', { size: 40 })], { ...small, maxEntries: 2 })
    const target = `${Array.from({ length: MAX_PATH_LEVELS }, () => 'x'.repeat(63)).join('/')}x`
    assert.equal(target.length, MAX_PATH_BYTES)
    planListing([entry('a'), symlink('l', target)], RULES)
  })

  const REFUSED: [string, ArchiveEntry[], object][] = [
    ['one byte too many', [entry('a', { size: 60 }), entry('b', { size: 41 })], isTooLarge],
    ['one entry too many', [entry('a'), entry('b'), entry('c'), entry('d')], isTooLarge],
    ['a symlink with a huge target', [symlink('l', 'x'.repeat(MAX_PATH_BYTES + 1))], isUnsafe],
  ]
  for (const [what, entries, expected] of REFUSED) {
    it(`refuse ${what}`, () => {
      const maxExtractedBytes = expected === isTooLarge ? 100 : LIMITS.maxExtractedBytes
      assert.throws(() => planListing(entries, { ...small, maxExtractedBytes }), expected)
    })
  }

  it('do not count a single top-level directory, listed or implied', () => {
    planListing([entry('top/a'), entry('top/b'), entry('top/c')], small)
    assert.throws(
      () => planListing([entry('top/a'), entry('top/b'), entry('top/c')], { ...small, shape: 'as packed' }),
      isTooLarge,
    )
  })

  it('accept any number of zeros within them', () => {
    const zeros = entry('zeros', { size: LIMITS.maxExtractedBytes, packedSize: LIMITS.maxExtractedBytes / 1032 })
    assert.equal(planListing([zeros], RULES).bytes, LIMITS.maxExtractedBytes)
  })

  /** Returns the number of entries that are read before the refusal. */
  function readBefore(refusal: object, entries: Iterable<ArchiveEntry>, maxEntries: number): number {
    const listing = new ArchiveListing({ ...RULES, maxEntries })
    let read = 0
    const readAll = () => {
      for (const one of entries) {
        listing.add(one)
        read++
      }
    }
    assert.throws(readAll, refusal)
    return read
  }

  function* endless(nameAt: (index: number) => string): Generator<ArchiveEntry> {
    for (let index = 0; ; index++) yield entry(nameAt(index))
  }

  it('stop at the first implied directory beyond them, not after the last entry', () => {
    const deep = endless(index => `${index}/${'d/'.repeat(60)}f`)
    assert.equal(readBefore(isTooLarge, deep, 1000), 16)
  })

  for (const [what, name] of [
    ['name', 'n'.repeat(249)],
    ['name of three-byte characters', '語'.repeat(83)],
  ] as const)
    it(`stop at the first ${what} that exceeds the memory for names`, () => {
      const folder = `${name}/`.repeat(15)
      const long = endless(index => `${folder}${index}`)
      assert.ok(readBefore(isTooLarge, long, 1000) < 420)
    })

  it('count the bytes of the targets of symlinks', () => {
    const links = Array.from({ length: 1000 }, (_, index) => symlink(`l${index}`, '語'.repeat(1300)))
    assert.ok(readBefore(isTooLarge, links, 1000) < 340)
  })
})

const SYMLINK_RULES = { maxExtractedBytes: 1e9, maxEntries: 200_000, platform: 'linux', shape: 'as packed' } as const

const TREE = [
  listedEntry('file'),
  listedEntry('dir/file'),
  listedEntry('dir/sub/deep'),
  listedSymlink('link', 'file'),
  listedSymlink('dirlink', 'dir/sub'),
  listedSymlink('dangling', 'nothing'),
]

/** Resolves a symlink at `path` in the tree above. */
function resolve(path: string, target: string): { file: string | null; reach: string } {
  const { symlinks } = planListing([listedSymlink(path, target), ...TREE], SYMLINK_RULES)
  const found = symlinks.find(symlink => symlink.path === path)
  return { file: found?.file ?? null, reach: found?.reach ?? 'nowhere' }
}

/** `l0 -> l1 -> ... -> file`. */
function chain(length: number) {
  return Array.from({ length }, (_, index) =>
    listedSymlink(`l${index}`, index === length - 1 ? 'file' : `l${index + 1}`),
  )
}

describe('a symlink in an archive', () => {
  const ACCEPTED: readonly [path: string, target: string, file: string | null, reach: string][] = [
    ['l', 'file', 'file', ''],
    ['l', './file', 'file', ''],
    ['l', 'dir', null, ''],
    ['l', 'dir/', null, ''],
    ['l', 'dir//file', 'dir/file', ''],
    ['l', 'dir/../file', 'file', ''],
    ['l', '.', null, ''],
    ['dir/l', '../file', 'file', ''],
    ['dir/l', '..', null, ''],
    ['dir/l', 'sub/../file', 'dir/file', 'dir'],
    ['dir/sub/l', 'deep', 'dir/sub/deep', 'dir/sub'],
    ['dir/sub/l', '../../dir/file', 'dir/file', ''],
    ['l', 'link', 'file', ''],
    ['l', 'dirlink/deep', 'dir/sub/deep', ''],
    ['l', 'dirlink/../file', 'dir/file', ''],
    ['dir/sub/l', '../../link', 'file', ''],
    ['l', 'nothing', null, ''],
    ['dir/l', 'nothing/more/', null, 'dir'],
    ['l', 'dangling', null, ''],
    ['l', 'dangling/more', null, ''],
    ['dir/l', `${'./'.repeat(63)}file`, 'dir/file', 'dir'],
  ]
  for (const [path, target, file, reach] of ACCEPTED) {
    it(`may be ${path} -> ${target}`, () => assert.deepEqual(resolve(path, target), { file, reach }))
  }

  const REFUSED: readonly [what: string, path: string, target: string][] = [
    ['an empty text', 'l', ''],
    ['an absolute path', 'l', '/file'],
    ['a drive letter', 'l', 'c:file'],
    ['a backslash', 'l', 'dir\\file'],
    ['a control character', 'l', 'file\n'],
    ['the parent of the root', 'l', '..'],
    ['a way out of the root and back', 'l', '../x/file'],
    ['a way out of the root in the middle', 'dir/l', '../../dir/file'],
    ['a way out behind a symlink, although the text alone stays inside', 'dir/sub/l', '../../dirlink/../../../file'],
    ['a way up from a missing name', 'l', 'nothing/../file'],
    ['a way up from a missing name, behind a symlink', 'l', 'dangling/../file'],
    ['a detour through a file', 'l', 'file/../file'],
    ['a detour through a file, behind a symlink', 'l', 'link/../file'],
    ['a file as a directory', 'l', 'file/'],
    ['itself', 'l', 'l'],
    ['a path below itself', 'l', 'l/more'],
    ['more than 64 components', 'l', `${'./'.repeat(64)}file`],
    ['more than 4,096 bytes', 'l', `dir/../${'x'.repeat(4096)}`],
  ]
  for (const [what, path, target] of REFUSED) {
    it(`may not have this target: ${what}`, () =>
      assert.throws(() => resolve(path, target), { name: 'ArchiveError', code: 'unsafe_archive' }))
  }

  it('is refused with the rule that its target breaks', () => {
    const rules: [target: string, rule: string][] = [
      ['/file', 'is a symlink to an absolute path, so'],
      ['/usr/bin/python3.11', 'is a symlink to an absolute path, as in a virtual environment of Python, which must'],
      ['c:file', 'is a symlink with a target that starts with a drive letter, so'],
      ['..', 'is a symlink that leads out of the extracted directory, so'],
    ]
    for (const [target, rule] of rules)
      assert.throws(
        () => resolve('l', target),
        error => error instanceof Error && error.message.includes(`entry "l" ${rule}`),
      )
  })

  it('may not form a loop with other symlinks', () => {
    const loop = [listedEntry('file'), listedSymlink('a', 'b'), listedSymlink('b', 'd/c'), listedSymlink('d/c', '../a')]
    assert.throws(() => planListing(loop, SYMLINK_RULES), { code: 'unsafe_archive' })
  })

  it('may not dangle at a name that the platform reserves', () => {
    const entries = [listedEntry('file'), listedSymlink('l', 'nul')]
    assert.equal(planListing(entries, SYMLINK_RULES).symlinks.length, 1)
    assert.throws(() => planListing(entries, { ...SYMLINK_RULES, platform: 'win32' }), { code: 'unsafe_archive' })
  })

  for (const order of ['first to last', 'last to first'] as const) {
    it(`may pass through 40 symlinks and no more, listed ${order}`, () => {
      const listed = (length: number) => (order === 'first to last' ? chain(length) : chain(length).reverse())
      const { symlinks } = planListing([listedEntry('file'), ...listed(40)], SYMLINK_RULES)
      assert.deepEqual(new Set(symlinks.map(({ file }) => file)), new Set(['file']))
      assert.throws(() => planListing([listedEntry('file'), ...listed(41)], SYMLINK_RULES), { code: 'unsafe_archive' })
    })
  }

  it('is resolved once, however many other symlinks lead through it', () => {
    const trunk = chain(30)
    const leaves = Array.from({ length: 5000 }, (_, index) => listedSymlink(`leaf${index}`, 'l0'))
    const { symlinks } = planListing([listedEntry('file'), ...trunk, ...leaves], SYMLINK_RULES)
    assert.ok(symlinks.every(({ file }) => file === 'file'))
  })
})
