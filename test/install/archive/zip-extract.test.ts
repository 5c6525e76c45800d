import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { fstatSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { promisify } from 'node:util'
import { ArchiveError, DeploymentError, errnoOf } from '../../../src/core/errors.ts'
import { DEFAULT_MAX_ENTRIES, DEFAULT_MAX_EXTRACTED_BYTES } from '../../../src/core/identifiers.ts'
import type { VerifiedArtifact } from '../../../src/core/trust/signature.ts'
import { ReadWindow } from '../../../src/install/archive/pieces.ts'
import { planZip } from '../../../src/install/archive/zip-extract.ts'
import type { ExtractedTree } from '../../../src/install/files/extracted-tree.ts'
import { TimeSlice } from '../../../src/install/files/time-slice.ts'
import { ACCEPTED_ZIPS, type AcceptedZip } from '../../archives/accepted-zips.ts'
import { HOSTILE_LIMITS, HOSTILE_ZIPS, type HostileZip } from '../../archives/hostile-zips.ts'
import { buildZip, directory, file, PROGRAM, symlink, type ZipItem } from '../../archives/zip-builder.ts'
import { mountMemory, whyNoMounting } from '../../e2e/harness/mounts.ts'
import { listTree } from '../../folders.ts'
import { extractZip, inTemporaryDirectory, withoutStamps, withVerifiedArtifact } from './artifacts.ts'

const run = promisify(execFile)
const LIMITS = { maxExtractedBytes: DEFAULT_MAX_EXTRACTED_BYTES, maxEntries: DEFAULT_MAX_ENTRIES }

/** Extracts into `<directory>/target`. */
async function extractIn(directory: string, bytes: Buffer, signal?: AbortSignal): Promise<ExtractedTree> {
  const target = join(directory, 'target')
  mkdirSync(target, { recursive: true })
  return withVerifiedArtifact(bytes, directory, async artifact => {
    const tree = await extractZip(artifact, { target, limits: LIMITS, signal })
    assert.equal(fstatSync(artifact.fd).size, bytes.length)
    return { ...tree, files: [...tree.files] }
  })
}

function expectedListing(zip: AcceptedZip): Record<string, string> {
  const listing: Record<string, string> = {}
  for (const path of zip.directories ?? []) listing[path] = '755 directory'
  for (const [path, target] of Object.entries(zip.symlinks ?? {})) listing[path] = `-> ${target}`
  for (const [path, content] of Object.entries(zip.files)) {
    const mode = zip.programs?.includes(path) ? '755' : '644'
    listing[path] = `${mode} ${Buffer.from(content).toString('latin1')}`
  }
  return listing
}

describe('extractZip', () => {
  for (const zip of ACCEPTED_ZIPS) {
    it(`extracts ${zip.name}`, async () => {
      await inTemporaryDirectory(async directory => {
        const tree = await extractIn(directory, zip.bytes)
        assert.deepEqual(listTree(join(directory, 'target')), expectedListing(zip))
        assert.equal(tree.flattened, zip.flattened ?? null)
      })
    })
  }

  it('drops a leading ./, which some archivers write', async () => {
    await inTemporaryDirectory(async root => {
      await extractIn(root, buildZip([directory('./'), file('./d/b', 'x'), file('a')]))
      assert.deepEqual(listTree(join(root, 'target')), { a: '644 a', d: '755 directory', 'd/b': '644 x' })
    })
  })

  it('writes nothing if there is no room for the whole tree', { skip: whyNoMounting() }, async t => {
    const target = mountMemory(t, 'size=1m')
    const bytes = buildZip([file('small'), { ...file('large', Buffer.alloc(2 * 1024 * 1024)), stored: true }])
    await inTemporaryDirectory(async directory => {
      const extraction = withVerifiedArtifact(bytes, directory, artifact =>
        extractZip(artifact, { target, limits: LIMITS }),
      )
      await assert.rejects(extraction, error => error instanceof DeploymentError && error.code === 'disk_full')
      assert.deepEqual(readdirSync(target), [])
    })
  })

  it('uses no inode if there are not enough for the whole tree', { skip: whyNoMounting() }, async t => {
    const target = mountMemory(t, 'nr_inodes=120')
    const paths = Array.from({ length: 100 }, (_, index) => `top/${index % 10}/${index}`)
    const bytes = buildZip(paths.map(path => file(path, 'x')))
    await inTemporaryDirectory(async directory => {
      const extraction = withVerifiedArtifact(bytes, directory, artifact =>
        extractZip(artifact, { target, limits: LIMITS }),
      )
      await assert.rejects(extraction, { code: 'disk_full', message: /needs 126 inodes in .* has 119 left/ })
      assert.deepEqual(readdirSync(target), [])
    })
  })

  it('returns the tree that it created', async () => {
    await inTemporaryDirectory(async directory => {
      const tree = await extractIn(directory, buildZip([file('top/d/a', 'content'), file('top/b', 'x')]))
      const sha256 = (text: string) => createHash('sha256').update(text).digest('hex')
      assert.deepEqual(withoutStamps(tree), {
        files: [
          { path: 'b', size: 1, mode: 0o644, sha256: sha256('x') },
          { path: 'd/a', size: 7, mode: 0o644, sha256: sha256('content') },
        ],
        symlinks: [],
        directories: ['d'],
        bytes: 8,
        flattened: 'top',
      })
    })
  })

  it('hashes a large file while writing it', async () => {
    await inTemporaryDirectory(async directory => {
      const large = ACCEPTED_ZIPS.find(({ name }) => name === 'a large deflated file')
      assert.ok(large)
      const tree = await extractIn(directory, large.bytes)
      const expected = createHash('sha256')
        .update(large.files['large'] ?? '')
        .digest('hex')
      assert.equal(tree.files.find(({ path }) => path === 'large')?.sha256, expected)
    })
  })

  it('accepts an archive that reaches the limits exactly', async () => {
    await inTemporaryDirectory(async directory => {
      const target = join(directory, 'target')
      mkdirSync(target)
      const bytes = buildZip([file('a', '12345'), file('b', '67890')])
      await withVerifiedArtifact(bytes, directory, artifact =>
        extractZip(artifact, { target, limits: { maxExtractedBytes: 10, maxEntries: 2 } }),
      )
      assert.deepEqual(readdirSync(target).sort(), ['a', 'b'])
    })
  })

  for (const there of ['a file', 'a symlink'] as const) {
    it(`writes neither over nor through ${there} in the target`, async () => {
      await inTemporaryDirectory(async directory => {
        const target = join(directory, 'target')
        mkdirSync(target)
        writeFileSync(join(directory, 'outside'), 'untouched')
        if (there === 'a file') writeFileSync(join(target, 'a'), 'untouched')
        else symlinkSync('../outside', join(target, 'a'))
        const before = listTree(directory)
        const isUnsafe = (error: unknown) => error instanceof ArchiveError && error.code === 'unsafe_archive'
        await assert.rejects(extractIn(directory, buildZip([file('a', 'evil')])), isUnsafe)
        assert.deepEqual(listTree(directory), before)
      })
    })
  }

  it('writes no more of a large entry than it declares', async () => {
    await inTemporaryDirectory(async directory => {
      const declared = 1024 * 1024 + 1
      const bytes = buildZip([{ ...file('a', Buffer.alloc(16 * declared, 'abc')), both: { size: declared } }])
      await assert.rejects(extractIn(directory, bytes), { code: 'invalid_archive' })
      assert.ok(statSync(join(directory, 'target/a')).size <= declared)
    })
  })

  it('unpacks no more of a small entry than it declares', async () => {
    await inTemporaryDirectory(async directory => {
      const bytes = buildZip([{ ...file('a', Buffer.alloc(16 * 1024 * 1024)), both: { size: 10 } }])
      const isCapped = (error: unknown) =>
        error instanceof ArchiveError && errnoOf(error.cause) === 'ERR_BUFFER_TOO_LARGE'
      await assert.rejects(extractIn(directory, bytes), isCapped)
    })
  })

  it('throws the reason of a signal that is already aborted, and writes nothing', async () => {
    await inTemporaryDirectory(async directory => {
      const reason = new Error('cancelled by the runner')
      await assert.rejects(extractIn(directory, buildZip([file('a')]), AbortSignal.abort(reason)), reason)
      assert.deepEqual(readdirSync(join(directory, 'target')), [])
    })
  })

  it('notices an abort while it extracts', async () => {
    await inTemporaryDirectory(async directory => {
      const large = Buffer.alloc(1024 * 1024, 'abcdefghijklmnopqrstuvwxyz0123456789')
      const items = Array.from({ length: 200 }, (_, index) => ({ ...file(`f${index}`, large), stored: true }))
      const controller = new AbortController()
      setImmediate(() => controller.abort(new Error('cancelled')))
      await assert.rejects(extractIn(directory, buildZip(items), controller.signal), controller.signal.reason)
      assert.ok(readdirSync(join(directory, 'target')).length < items.length)
    })
  })

  for (const umask of ['000', '077', '777']) {
    it(`extracts the same modes under umask ${umask}`, async () => {
      await inTemporaryDirectory(async directory => {
        const target = join(directory, 'target')
        mkdirSync(target)
        writeFileSync(
          join(directory, 'artifact.zip'),
          buildZip([{ ...file('top/d/a', 'x'), mode: PROGRAM }, file('b', 'y')]),
        )
        const child = join(import.meta.dirname, 'extract-under-umask.ts')
        await run(process.execPath, [child, umask, join(directory, 'artifact.zip'), target])
        assert.deepEqual(listTree(target), {
          b: '644 y',
          top: '755 directory',
          'top/d': '755 directory',
          'top/d/a': '755 x',
        })
      })
    })
  }
})

async function attack(hostile: HostileZip, artifact: VerifiedArtifact, target: string): Promise<unknown> {
  if (hostile.platform === undefined) return extractZip(artifact, { target, limits: HOSTILE_LIMITS })
  const rules = { ...HOSTILE_LIMITS, platform: hostile.platform, shape: 'flattened' as const }
  return planZip({ window: new ReadWindow(artifact), rules, slice: new TimeSlice() })
}

describe('a hostile archive', () => {
  let refused = 0

  for (const hostile of HOSTILE_ZIPS) {
    const [code] = hostile.name.split('--')
    it(`is refused: ${hostile.name}`, async () => {
      await inTemporaryDirectory(async directory => {
        const target = join(directory, 'target')
        mkdirSync(target)
        await withVerifiedArtifact(hostile.bytes(), directory, async artifact => {
          const isExpected = (error: unknown) => error instanceof ArchiveError && error.code === code
          await assert.rejects(attack(hostile, artifact, target), isExpected)
        })
        assert.deepEqual(readdirSync(directory), ['target'])
        if (hostile.onlyWhileExtracting === undefined) assert.deepEqual(readdirSync(target), [])
        refused += 1
      })
    })
  }

  it('has a unique name in the table', () => {
    assert.equal(new Set(HOSTILE_ZIPS.map(({ name }) => name)).size, HOSTILE_ZIPS.length)
  })

  it('is refused in every case of the table', t => {
    t.diagnostic(`${refused} of ${HOSTILE_ZIPS.length} hostile archives refused`)
    assert.equal(refused, HOSTILE_ZIPS.length)
  })
})

const RULES = { maxExtractedBytes: 1e9, maxEntries: 1000, platform: 'linux', shape: 'flattened' } as const

/** A path of 60 levels would take 4,000 bytes or more if each path had its own copy of the levels above it. */
const MAX_HEAP_BYTES_PER_DEEP_PATH = 1000

const DEEP = Array.from({ length: 60 }, (_, level) => `level-${level}`).join('/')

const symlinksIntoTheDeep = (count: number): ZipItem[] => [
  file(`${DEEP}/x`),
  symlink('d/short', `../${DEEP}`),
  ...Array.from({ length: count }, (_, at) => symlink(`d/l${at}`, 'short/x')),
]

/** The directories are below two top-level directories in turn. */
const deepDirectories = (count: number): ZipItem[] => [
  file('a'),
  ...Array.from({ length: count }, (_, at) => directory(`${at % 2}/${DEEP}/${at}/`)),
]

/** Returns the bytes of heap that a planned ZIP with 10,000 of these items takes for each path. */
async function heapBytesPerItem(items: (count: number) => ZipItem[]): Promise<number> {
  return await inTemporaryDirectory(async folder => {
    const paths = [500, 10_000].map(count => {
      const path = join(folder, `${count}.zip`)
      writeFileSync(path, buildZip(items(count)))
      return path
    })
    const child = join(import.meta.dirname, 'planned-zip-heap.ts')
    const { stdout } = await run(process.execPath, ['--expose-gc', child, ...paths])
    const planned: { paths: number; bytes: number } = JSON.parse(stdout)
    assert.ok(planned.paths >= 10_000)
    return planned.bytes / planned.paths
  })
}

describe('planZip', () => {
  for (const [subject, items] of Object.entries({ symlinksIntoTheDeep, deepDirectories })) {
    it(`has the levels above a path in memory only once: ${subject}`, async () => {
      const bytes = await heapBytesPerItem(items)
      assert.ok(bytes < MAX_HEAP_BYTES_PER_DEEP_PATH, `${bytes} bytes for each path`)
    })
  }

  // In another order, the same megabyte of a ZIP could be read again for each of its symlinks.
  it('reads symlinks in the order of their data, whatever the order of the directory', async () => {
    const damaged = (name: string): ZipItem => ({ ...symlink(name, 'a'), both: { crc: 1 } })
    const bytes = buildZip([file('a'), damaged('first'), damaged('second')], { reversedDirectory: true })
    await inTemporaryDirectory(async folder => {
      await withVerifiedArtifact(bytes, folder, async artifact => {
        const zip = { window: new ReadWindow(artifact), rules: RULES, slice: new TimeSlice() }
        await assert.rejects(planZip(zip), { code: 'invalid_archive', message: /"first" does not have the CRC/ })
      })
    })
  })
})
