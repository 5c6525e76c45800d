import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { listedEntry, listedSymlink, planListing } from './plan-listing.ts'

const RULES = { maxExtractedBytes: 1e9, maxEntries: 200_000, platform: 'linux', shape: 'as packed' } as const

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
  const { symlinks } = planListing([listedSymlink(path, target), ...TREE], RULES)
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
    assert.throws(() => planListing(loop, RULES), { code: 'unsafe_archive' })
  })

  it('may not dangle at a name that the platform reserves', () => {
    const entries = [listedEntry('file'), listedSymlink('l', 'nul')]
    assert.equal(planListing(entries, RULES).symlinks.length, 1)
    assert.throws(() => planListing(entries, { ...RULES, platform: 'win32' }), { code: 'unsafe_archive' })
  })

  for (const order of ['first to last', 'last to first'] as const) {
    it(`may pass through 40 symlinks and no more, listed ${order}`, () => {
      const listed = (length: number) => (order === 'first to last' ? chain(length) : chain(length).reverse())
      const { symlinks } = planListing([listedEntry('file'), ...listed(40)], RULES)
      assert.deepEqual(new Set(symlinks.map(({ file }) => file)), new Set(['file']))
      assert.throws(() => planListing([listedEntry('file'), ...listed(41)], RULES), { code: 'unsafe_archive' })
    })
  }

  it('is resolved once, however many other symlinks lead through it', () => {
    const trunk = chain(30)
    const leaves = Array.from({ length: 5000 }, (_, index) => listedSymlink(`leaf${index}`, 'l0'))
    const { symlinks } = planListing([listedEntry('file'), ...trunk, ...leaves], RULES)
    assert.ok(symlinks.every(({ file }) => file === 'file'))
  })
})
