import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { isRoot, type TarEntry, TarReader } from '../../../src/core/archive/tar.ts'
import { ArchiveError } from '../../../src/core/errors.ts'
import { buildTar, directory, file, GNU, gnuLong, pax, symlink, type TarItem, V7 } from '../../archives/tar-builder.ts'

const LIMITS = { maxExtractedBytes: 1_000_000, maxEntries: 100 }
const LONG = `${'d/'.repeat(60)}ä`

interface Member {
  entry: TarEntry
  text: string
}

/** Reads the members of a tar with their data. Each piece belongs to the member that was opened last. */
function read(tar: Buffer, pieceBytes = tar.length): Member[] {
  const reader = new TarReader(LIMITS)
  const members: Member[] = []
  let isOpen = false
  for (let at = 0; at < tar.length; at += pieceBytes) {
    for (const { entry, data, isFirst, isLast } of reader.read(tar.subarray(at, at + pieceBytes))) {
      assert.equal(isFirst, !isOpen)
      isOpen = !isLast
      if (isFirst) members.push({ entry, text: '' })
      const member = members.at(-1) as Member
      assert.equal(member.entry, entry)
      member.text += data.toString()
    }
  }
  reader.finish()
  assert.equal(isOpen, false)
  return members
}

function list(tar: Buffer, pieceBytes?: number): TarEntry[] {
  return read(tar, pieceBytes).map(({ entry }) => entry)
}

function only(items: TarItem[]): TarEntry {
  const entries = list(buildTar(items))
  assert.equal(entries.length, 1)
  return entries[0] as TarEntry
}

const members: { name: string; items: TarItem[]; expected: Partial<TarEntry> }[] = [
  {
    name: 'a file',
    items: [file('a', 'abc')],
    expected: { name: 'a', type: 'file', size: 3, executable: false, target: null, packedSize: null },
  },
  { name: 'a program', items: [file('a', '', { mode: 0o6755 })], expected: { executable: true } },
  {
    name: 'a file that only its group may run',
    items: [file('a', '', { mode: 0o654 })],
    expected: { executable: false },
  },
  { name: 'a directory', items: [directory('d/')], expected: { name: 'd/', type: 'directory', size: 0 } },
  { name: 'a directory without its slash', items: [directory('d')], expected: { name: 'd', type: 'directory' } },
  {
    name: 'a file in the oldest format',
    items: [file('a', 'abc', { type: '\0', fields: { magic: V7 } })],
    expected: { name: 'a', type: 'file', size: 3 },
  },
  { name: 'a symlink', items: [symlink('l', 'a/b')], expected: { type: 'symlink', target: 'a/b' } },
  { name: 'a leading ./', items: [file('./a')], expected: { name: 'a', storedName: './a' } },
  { name: 'a prefix', items: [file('a', '', { fields: { prefix: 'p/q' } })], expected: { name: 'p/q/a' } },
  { name: 'a GNU header', items: [file('a', '', { fields: { magic: GNU } })], expected: { name: 'a' } },
  { name: 'a name of 100 bytes', items: [file('n'.repeat(100))], expected: { name: 'n'.repeat(100) } },
  {
    name: 'a size with spaces around it',
    items: [file('a', '', { fields: { rawSize: Buffer.from('         0 \0') } })],
    expected: { size: 0 },
  },
  { name: 'a PAX path', items: [pax({ path: LONG }), file('cut', 'abc')], expected: { name: LONG, size: 3 } },
  {
    name: 'a PAX path that follows other fields',
    items: [pax({ mtime: '1700000000.123456789', ctime: '1700000000.123456789', path: 'late' }), file('early')],
    expected: { name: 'late' },
  },
  { name: 'a PAX size', items: [pax({ size: '3' }), file('a', 'abc')], expected: { size: 3 } },
  { name: 'a PAX link path', items: [pax({ linkpath: LONG }), symlink('l', 'cut')], expected: { target: LONG } },
  {
    name: 'PAX times and attributes',
    items: [pax({ mtime: '1.5', 'SCHILY.xattr.user.a': 'b', 'SCHILY.ino': '1' }), file('a')],
    expected: { name: 'a' },
  },
  { name: 'a comment for all members', items: [pax({ comment: 'f00' }, 'g'), file('a')], expected: { name: 'a' } },
  {
    name: 'a comment between a PAX header and its member',
    items: [pax({ path: 'b' }), pax({ comment: 'x' }, 'g'), file('a')],
    expected: { name: 'b' },
  },
  { name: 'a GNU name', items: [gnuLong('L', LONG), file('cut')], expected: { name: LONG } },
  {
    name: 'a GNU name and link name',
    items: [gnuLong('K', LONG), gnuLong('L', `x${LONG}`), symlink('cut', 'cut')],
    expected: { name: `x${LONG}`, target: LONG },
  },
  {
    name: 'a name cut inside a character, along with the whole name',
    items: [pax({ path: LONG }), file('', '', { fields: { rawName: Buffer.from([0x61, 0xc3]) } })],
    expected: { name: LONG },
  },
]

const SAMPLE = buildTar([
  pax({ comment: 'f00' }, 'g'),
  directory('./'),
  file('./a', 'x'.repeat(1000)),
  pax({ path: LONG }),
  file('cut', 'y'.repeat(512)),
  gnuLong('L', `${LONG}2`),
  file('cut', ''),
  symlink('l', 'a'),
])

describe('TarReader', () => {
  for (const { name, items, expected } of members) {
    it(`reads ${name}`, () => assert.deepEqual({ ...only(items), ...expected }, only(items)))
  }

  it('applies a PAX header to one member only', () => {
    const entries = list(buildTar([pax({ path: 'long', size: '0' }), file('a'), file('b', 'abc')]))
    assert.deepEqual(
      entries.map(({ name, size }) => [name, size]),
      [
        ['long', 0],
        ['b', 3],
      ],
    )
  })

  it('accepts a PAX size that does not fit into a header whose own size is zero or full, and no other', () => {
    const size = 8 * 1024 ** 3
    const first = (own: number, announced = size): TarEntry | undefined => {
      const tar = buildTar([pax({ size: String(announced) }), file('a', '', { size: own })])
      for (const { entry } of new TarReader({ maxExtractedBytes: 2 * size, maxEntries: 1 }).read(tar)) return entry
      return undefined
    }
    for (const own of [0, size - 1]) assert.equal(first(own)?.size, size)
    for (const [own, announced] of [[1], [size - 2], [0, size - 1], [size - 1, size - 2]] as const)
      assert.throws(() => first(own, announced), { code: 'invalid_archive' })
  })

  it('recognizes the root by its two names', () => {
    const entries = list(buildTar([directory('./'), directory('.'), directory('.a'), file('./b')]))
    assert.deepEqual(entries.map(isRoot), [true, true, false, false])
  })

  it('yields the data of each member', () => {
    const contents = ['abc', '', 'x'.repeat(600), 'y'.repeat(1024)]
    const tar = buildTar([pax({ path: LONG }), ...contents.map((content, at) => file(`f${at}`, content))])
    assert.deepEqual(
      read(tar, 700).map(({ text }) => text),
      contents,
    )
  })

  it('yields a member before its data is complete', () => {
    const [part, ...more] = new TarReader(LIMITS).read(buildTar([file('a', 'x'.repeat(2000))]).subarray(0, 1000))
    assert.deepEqual([part?.entry.name, part?.data.length, part?.isFirst, part?.isLast], ['a', 488, true, false])
    assert.deepEqual(more, [])
  })

  it('reads the same members in pieces of any size', () => {
    const whole = read(SAMPLE)
    assert.equal(whole.length, 5)
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 3000 }), pieceBytes => assert.deepEqual(read(SAMPLE, pieceBytes), whole)),
      { numRuns: 50 },
    )
  })

  for (const [name, announcement] of [
    ['PAX', pax({ linkpath: LONG })],
    ['GNU', gnuLong('K', LONG)],
  ] as const)
    it(`keeps the symlink target that a ${name} header announced, even if the piece is overwritten`, () => {
      const tar = buildTar([announcement, symlink('l', 'cut')])
      const reader = new TarReader(LIMITS)
      const targets: (string | null)[] = []
      for (let at = 0; at < tar.length; at += 512) {
        const piece = Buffer.from(tar.subarray(at, at + 512))
        for (const { entry } of reader.read(piece)) targets.push(entry.target)
        piece.fill('z')
      }
      reader.finish()
      assert.deepEqual(targets, [LONG])
    })

  it('refuses the first member beyond the limit as soon as it arrives', () => {
    const reader = new TarReader({ ...LIMITS, maxEntries: 2 })
    const three = buildTar([file('a'), file('b'), file('c')])
    assert.equal([...reader.read(three.subarray(0, 1024))].length, 2)
    assert.throws(() => [...reader.read(three.subarray(1024, 1536))], { code: 'archive_too_large' })
  })

  it('distinguishes an empty extension header from one that is too large', () => {
    const empty = buildTar([pax({ comment: 'x' }, 'g'), pax({}), file('a')])
    assert.throws(() => list(empty), { code: 'invalid_archive', message: /\(its tar has an empty extension header\)/ })
    const large = buildTar([pax({ path: 'b' }), pax({ comment: 'x'.repeat(65_536) }, 'g'), file('a')])
    assert.throws(() => list(large), { code: 'invalid_archive', message: /more than 65536 bytes of PAX headers/ })
  })

  it('cleans the key that a refusal quotes from a global header', () => {
    const tar = buildTar([pax({ 'GNU.\u001b[2J::x': '1' }, 'g'), file('a')])
    assert.throws(() => list(tar), { code: 'invalid_archive', message: /header sets GNU\.::x for every member/ })
  })

  it('refuses every incomplete archive', () => {
    for (let length = 0; length < SAMPLE.length; length += 64) {
      assert.throws(() => list(SAMPLE.subarray(0, length), 512), { code: 'invalid_archive' })
    }
  })

  it('reads an archive or refuses it with an ArchiveError, whichever bytes change', () => {
    const change = fc.tuple(fc.nat(SAMPLE.length - 1), fc.nat(255))
    fc.assert(
      fc.property(fc.array(change, { minLength: 1, maxLength: 4 }), changes => {
        const tar = Buffer.from(SAMPLE)
        for (const [at, byte] of changes) tar.writeUInt8(byte, at)
        try {
          list(tar)
        } catch (error) {
          assert.ok(error instanceof ArchiveError)
        }
      }),
      { numRuns: 500 },
    )
  })
})
