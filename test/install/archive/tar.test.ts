import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { zstdCompressSync } from 'node:zlib'
import { ArchiveError, DeploymentError } from '../../../src/core/errors.ts'
import { DEFAULT_MAX_ENTRIES, DEFAULT_MAX_EXTRACTED_BYTES } from '../../../src/core/identifiers.ts'
import { listTar } from '../../../src/install/archive/tar.ts'
import type { ExtractedTree } from '../../../src/install/files/extracted-tree.ts'
import { COSTLY_TAR_ENTRIES, COSTLY_TARS } from '../../archives/costly-tars.ts'
import { HOSTILE_TAR_LIMITS, HOSTILE_TARS } from '../../archives/hostile-tars.ts'
import { buildTar, directory, file, gnuLong, pax, symlink, type TarItem } from '../../archives/tar-builder.ts'
import { mountMemory, whyNoMounting } from '../../e2e/harness/mounts.ts'
import { listTree, temporaryDirectory } from '../../folders.ts'
import { extractTar, openedTar, openedZstd, withoutStamps } from './artifacts.ts'

const LIMITS = { maxExtractedBytes: DEFAULT_MAX_EXTRACTED_BYTES, maxEntries: DEFAULT_MAX_ENTRIES }
const LONG = `${'d'.repeat(120)}/${'ä'.repeat(60)}`

function makeTarget(t: TestContext): string {
  const target = join(temporaryDirectory(t), 'target')
  mkdirSync(target)
  return target
}

async function extract(items: TarItem[], target: string, signal?: AbortSignal): Promise<ExtractedTree> {
  return extractTar(await openedTar(buildTar(items)), { target, limits: LIMITS, signal })
}

const accepted: { name: string; items: TarItem[]; listing: Record<string, string> }[] = [
  {
    name: 'members that start with ./',
    items: [directory('./'), directory('./plugins/'), file('./plugins/a', 'x'), file('./b', 'y')],
    listing: { plugins: '755 directory', 'plugins/a': '644 x', b: '644 y' },
  },
  {
    name: 'a single top-level directory without flattening it',
    items: [directory('plugins/'), file('plugins/a', 'x')],
    listing: { plugins: '755 directory', 'plugins/a': '644 x' },
  },
  {
    name: 'directories that no member lists, and one listed after its contents',
    items: [file('a/b/c', 'x'), directory('a/b/', { mode: 0o700 })],
    listing: { a: '755 directory', 'a/b': '755 directory', 'a/b/c': '644 x' },
  },
  {
    name: 'modes without set-uid, set-gid, sticky or write for others',
    items: [file('a', 'x', { mode: 0o6777 }), file('b', 'y', { mode: 0o1666 }), directory('d/', { mode: 0o2777 })],
    listing: { a: '755 x', b: '644 y', d: '755 directory' },
  },
  {
    name: 'a symlink before its target',
    items: [symlink('l', 'd/a'), file('d/a', 'x')],
    listing: { l: '-> d/a', d: '755 directory', 'd/a': '644 x' },
  },
  {
    name: 'a symlink to the root',
    items: [file('d/a', 'x'), symlink('d/up', '..')],
    listing: { d: '755 directory', 'd/a': '644 x', 'd/up': '-> ..' },
  },
  {
    name: 'long PAX names',
    items: [pax({ path: LONG }), file('cut', 'x'), pax({ path: 'l', linkpath: LONG }), symlink('cut', 'cut')],
    listing: { [dirOf(LONG)]: '755 directory', [LONG]: '644 x', l: `-> ${LONG}` },
  },
  {
    name: 'long GNU names',
    items: [gnuLong('L', LONG), file('cut', 'x'), gnuLong('K', LONG), symlink('l', 'cut')],
    listing: { [dirOf(LONG)]: '755 directory', [LONG]: '644 x', l: `-> ${LONG}` },
  },
  {
    name: 'a PAX size that repeats that of the header',
    items: [pax({ size: '3' }), file('a', 'abc'), file('b', 'y')],
    listing: { a: '644 abc', b: '644 y' },
  },
  {
    name: 'the comment in which git archive names the commit',
    items: [pax({ comment: 'f00' }, 'g'), file('a', 'x')],
    listing: { a: '644 x' },
  },
  { name: 'an empty file', items: [file('a')], listing: { a: '644 ' } },
  {
    name: 'a file of whole blocks',
    items: [file('a', 'x'.repeat(1024)), file('b')],
    listing: { a: `644 ${'x'.repeat(1024)}`, b: '644 ' },
  },
]

/** A path that is short enough for an archive, but too long below any folder. */
const LONGEST = 'd'.repeat(255).concat('/').repeat(16).slice(0, 4090)

const REFUSED_BY_THE_HOST: { is: string; file: TarItem[] }[] = [
  { is: 'a file that exists', file: [file('there', 'evil')] },
  { is: 'a large file that exists', file: [file('there', Buffer.alloc(3_000_000))] },
  { is: 'a path that is too long', file: [pax({ path: LONGEST }), file('cut', 'x')] },
]

function dirOf(path: string): string {
  return path.slice(0, path.lastIndexOf('/'))
}

describe('extractTar', () => {
  for (const { name, items, listing } of accepted) {
    it(`extracts ${name}`, async t => {
      const target = makeTarget(t)
      const tree = await extract(items, target)
      assert.deepEqual(listTree(target), listing)
      assert.equal(tree.flattened, null)
    })
  }

  it('returns the tree that it created, with the digest of each file', async t => {
    const large = createHash('shake128', { outputLength: 3_000_000 }).digest()
    const tree = await extract(
      [file('./d/a', 'abc', { mode: 0o755 }), file('large', large), symlink('l', 'd')],
      makeTarget(t),
    )
    const sha256 = (bytes: string | Buffer) => createHash('sha256').update(bytes).digest('hex')
    assert.deepEqual(withoutStamps(tree), {
      files: [
        { path: 'd/a', size: 3, mode: 0o755, sha256: sha256('abc') },
        { path: 'large', size: large.length, mode: 0o644, sha256: sha256(large) },
      ],
      symlinks: [{ path: 'l', target: 'd', file: null, reach: '' }],
      directories: ['d'],
      bytes: large.length + 3,
      flattened: null,
    })
  })

  it('extracts a tar in several frames, wherever it is split', async t => {
    const tar = buildTar([file('a', 'x'.repeat(5000)), file('b', 'y'.repeat(5000))])
    const frames = [tar.subarray(0, 700), tar.subarray(700, 5001), tar.subarray(5001)].map(part =>
      zstdCompressSync(part),
    )
    const target = makeTarget(t)
    await extractTar(await openedZstd(Buffer.concat(frames)), { target, limits: LIMITS })
    assert.deepEqual(readdirSync(target), ['a', 'b'])
  })

  it('writes at first only the requested files, but checks all the others', async t => {
    const first = new Set(['manifest.json', 'deployment/install.yaml', 'link'])
    const items = [
      ...[file('manifest.json', '{}'), file('deployment/install.yaml', 'x'), file('deployment/more', 'y')],
      ...[file('plugins/a/main', 'z'), symlink('link', 'manifest.json')],
    ]
    const target = makeTarget(t)
    const { tree, write } = await listTar(await openedTar(buildTar(items)), { target, limits: LIMITS, first })
    assert.deepEqual(listTree(target), {
      deployment: '755 directory',
      'deployment/install.yaml': '644 x',
      'manifest.json': '644 {}',
    })
    assert.deepEqual(withoutStamps(tree), withoutStamps(await write()))
    assert.deepEqual(Object.keys(listTree(target)).length, 8)
    const hostile = await openedTar(buildTar([...items, file('../outside', '')]))
    await assert.rejects(listTar(hostile, { target: makeTarget(t), limits: LIMITS, first }), { code: 'unsafe_archive' })
  })

  it('writes no more of an archive that it has not read to its end than the size of the archive is worth', async t => {
    const noise = createHash('shake128', { outputLength: 1_500_000 }).digest()
    const items = [file('noise', noise), ...Array.from({ length: 2000 }, (_, index) => file(`${index}/f`))]
    const opened = await openedTar(buildTar(items))
    const target = makeTarget(t)
    const { tree, write } = await listTar(opened, { target, limits: LIMITS })
    const written = Object.keys(listTree(target)).length
    assert.ok(written > 100 && written <= (opened.zstd.length - 1024 * 1024) / 1024 + 2, `${written} were written`)
    assert.deepEqual(withoutStamps(await write()), withoutStamps(tree))
    assert.equal(Object.keys(listTree(target)).length, 4001)
    const refused = makeTarget(t)
    const hostile = await openedTar(buildTar([...items, file('../outside')]))
    await assert.rejects(listTar(hostile, { target: refused, limits: LIMITS }), { code: 'unsafe_archive' })
    assert.ok(Object.keys(listTree(refused)).length <= written)
  })

  it('refuses a second tar in a frame of its own', async t => {
    const frames = ['a', 'b'].map(name => zstdCompressSync(buildTar([file(name)])))
    const target = makeTarget(t)
    const isRefusal = (error: unknown) => error instanceof ArchiveError && error.code === 'invalid_archive'
    await assert.rejects(extractTar(await openedZstd(Buffer.concat(frames)), { target, limits: LIMITS }), isRefusal)
    assert.deepEqual(readdirSync(target), [])
  })

  it('makes implied directories and directories without files', async t => {
    const target = makeTarget(t)
    const { directories } = await extract([directory('a/b/'), file('c/d/e', ''), directory('f/')], target)
    assert.deepEqual(directories, ['a', 'a/b', 'c', 'c/d', 'f'])
    assert.deepEqual(Object.keys(listTree(target)).toSorted(), ['a', 'a/b', 'c', 'c/d', 'c/d/e', 'f'])
  })

  it('extracts files of any size, wherever the decoder splits its output', async t => {
    const noise = createHash('shake128', { outputLength: 9_000_000 }).digest()
    const sizes = [3_000_000, 0, 1_048_575, 1, 1_048_576, 1_048_577, 600_000, 600_000, 512]
    const contents = sizes.map((size, index) => noise.subarray(index * 1000, index * 1000 + size))
    const target = makeTarget(t)
    const { files } = await extract(
      contents.map((content, index) => file(`f${index}`, content)),
      target,
    )
    for (const [index, content] of contents.entries()) {
      assert.ok(readFileSync(join(target, `f${index}`)).equals(content))
      assert.equal(files[index]?.sha256, createHash('sha256').update(content).digest('hex'))
    }
  })

  it('writes nothing if there is no room for the whole tree', { skip: whyNoMounting() }, async t => {
    const target = mountMemory(t, 'size=1m')
    const noise = createHash('shake128', { outputLength: 2_000_000 }).digest()
    const isFull = (error: unknown) => error instanceof DeploymentError && error.code === 'disk_full'
    await assert.rejects(extract([file('small', 'x'), file('large', noise)], target), isFull)
    assert.deepEqual(readdirSync(target), [])
  })

  it('uses no inode if there are not enough for the whole tree', { skip: whyNoMounting() }, async t => {
    const target = mountMemory(t, 'nr_inodes=50')
    const entries = Array.from({ length: 40 }, (_, index) => file(`${index % 4}/${index}`, 'x'))
    await assert.rejects(extract(entries, target), { code: 'disk_full', message: /needs 60 inodes in .* has 49 left/ })
    assert.deepEqual(readdirSync(target), [])
  })

  it('extracts a tree that fits on the disk, even if the limits allow more than fits', {
    skip: whyNoMounting(),
  }, async t => {
    const target = mountMemory(t, 'size=4m')
    const noise = createHash('shake128', { outputLength: 2_000_000 }).digest()
    await extract([file('small', 'x'), file('large', noise)], target)
    assert.deepEqual(readdirSync(target).toSorted(), ['large', 'small'])
  })

  it('reports a problem of the archive rather than one of the host', { skip: whyNoMounting() }, async t => {
    const limits = { maxExtractedBytes: 1_000_000, maxEntries: 100 }
    for (const [target, code] of [
      [mountMemory(t, 'size=4m,ro'), 'host_not_writable'],
      [mountMemory(t, 'size=16k'), 'disk_full'],
    ] as const) {
      const good = [file('good', 'x'.repeat(30_000))]
      await assert.rejects(extractTar(await openedTar(buildTar(good)), { target, limits }), { code })
      const hostile = await openedTar(buildTar([...good, file('../evil', '')]))
      await assert.rejects(extractTar(hostile, { target, limits }), { code: 'unsafe_archive' })
    }
  })

  for (const { file: refused, is } of REFUSED_BY_THE_HOST) {
    it(`reports a problem of the archive rather than this host's refusal of ${is}`, async t => {
      const within = async (items: TarItem[]): Promise<ExtractedTree> => {
        const target = makeTarget(t)
        writeFileSync(join(target, 'there'), 'untouched')
        return extract([...refused, file('between', 'x'), ...items], target)
      }
      await assert.rejects(within([]), { code: 'unsafe_archive', message: /this file system/ })
      await assert.rejects(within([file('../evil')]), { code: 'unsafe_archive', message: /"\.\.\/evil"/ })
      await assert.rejects(within([symlink('l', '../evil')]), { code: 'unsafe_archive', message: /"l"/ })
      await assert.rejects(within([file('x', 'abc', { size: 4096 })]), { code: 'invalid_archive' })
      const tooLarge = file('x', '', { size: LIMITS.maxExtractedBytes })
      await assert.rejects(within([tooLarge]), { code: 'archive_too_large' })
    })
  }

  it('reports that a tar ends within a file, rather than a problem in its incomplete listing', async t => {
    const tar = buildTar([symlink('l', '../evil'), file('large', Buffer.alloc(3_000_000))]).subarray(0, 2_000_000)
    const target = makeTarget(t)
    await assert.rejects(extractTar(await openedTar(tar), { target, limits: LIMITS }), { code: 'invalid_archive' })
  })

  it('writes no file after one that the host refuses', async t => {
    const target = makeTarget(t)
    writeFileSync(join(target, 'there'), 'untouched')
    await assert.rejects(extract([file('first'), file('there', 'evil'), file('last')], target), {
      code: 'unsafe_archive',
    })
    assert.deepEqual(listTree(target), { first: '644 ', there: '644 untouched' })
  })

  it('lists no tar of which the host refuses a requested file', async t => {
    const target = makeTarget(t)
    writeFileSync(join(target, 'there'), 'untouched')
    const opened = await openedTar(buildTar([file('there', 'evil'), file('last')]))
    const listing = listTar(opened, { target, limits: LIMITS, first: new Set(['there', 'last']) })
    await assert.rejects(listing, { code: 'unsafe_archive' })
    assert.deepEqual(listTree(target), { there: '644 untouched' })
  })

  for (const there of ['a file', 'a symlink to a file outside']) {
    it(`writes neither over nor through ${there} in the target`, async t => {
      const target = makeTarget(t)
      writeFileSync(join(target, '../outside'), 'untouched')
      if (there === 'a file') writeFileSync(join(target, 'a'), 'untouched')
      else symlinkSync('../outside', join(target, 'a'))
      const before = listTree(join(target, '..'))
      const isUnsafe = (error: unknown) => error instanceof ArchiveError && error.code === 'unsafe_archive'
      await assert.rejects(extract([file('a', 'evil')], target), isUnsafe)
      assert.deepEqual(listTree(join(target, '..')), before)
    })
  }

  it('throws the reason of a signal that is already aborted, and writes nothing', async t => {
    const target = makeTarget(t)
    const reason = new Error('cancelled by the runner')
    await assert.rejects(extract([file('a')], target, AbortSignal.abort(reason)), reason)
    assert.deepEqual(readdirSync(target), [])
  })

  it('notices an abort while it extracts', async t => {
    const target = makeTarget(t)
    const items = Array.from({ length: 3000 }, (_, index) => file(`f${index}`, `${index}`.repeat(1000)))
    const opened = await openedTar(buildTar(items))
    const controller = new AbortController()
    setImmediate(() => controller.abort(new Error('cancelled')))
    await assert.rejects(
      extractTar(opened, { target, limits: LIMITS, signal: controller.signal }),
      error => error === controller.signal.reason,
    )
    assert.ok(readdirSync(target).length < items.length)
  })
})

describe('a costly tar', () => {
  const limits = { ...LIMITS, maxEntries: COSTLY_TAR_ENTRIES }
  for (const { name, code, bytes } of COSTLY_TARS) {
    it(`is refused before anything of it is created: ${name}`, async t => {
      const target = makeTarget(t)
      await assert.rejects(listTar(await openedTar(bytes()), { target, limits }), { code })
      assert.deepEqual(readdirSync(target), [])
    })
  }
})

describe('a hostile tar', () => {
  for (const { name, bytes } of HOSTILE_TARS) {
    const [code] = name.split('--')
    it(`is refused, and neither the refused entry nor a symlink is written: ${name}`, async t => {
      const directory = temporaryDirectory(t)
      const target = join(directory, 'target')
      mkdirSync(target)
      const isExpected = (error: unknown) => error instanceof ArchiveError && error.code === code
      await assert.rejects(extractTar(await openedTar(bytes()), { target, limits: HOSTILE_TAR_LIMITS }), isExpected)
      assert.deepEqual(readdirSync(directory), ['target'])
      for (const what of Object.values(listTree(target))) assert.match(what, /^(644|755) (?!special|evil)/)
    })
  }

  it('has a unique name in the table', () => {
    assert.equal(new Set(HOSTILE_TARS.map(({ name }) => name)).size, HOSTILE_TARS.length)
  })
})
