import { createCipheriv } from 'node:crypto'
import { buildTar, directory, file, GNU, gnuLong, pax, paxRecord, symlink, TAR_END, type TarItem, V7 } from './tar-builder.ts'

export interface HostileTar {
  /** `<code>--<fault>`. */
  readonly name: string
  readonly bytes: () => Buffer
}

/** Limits that some of these archives exceed. */
export const HOSTILE_TAR_LIMITS = { maxExtractedBytes: 4 * 1024 * 1024, maxEntries: 50 }

const KIB = 1024
const MIB = 1024 * KIB
const GOOD = file('good.txt', 'good')
/** Bytes that zstd cannot compress. */
const NOISE = createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16)).update(Buffer.alloc(2 * MIB))
const MANY = Array.from({ length: 30 }, (_, index) => file(`folder-${index % 3}/${index}`, 'good'))
const HIDDEN = buildTar([file('hidden', 'evil')], Buffer.alloc(0))
const LONG = `${'d/'.repeat(60)}file`

function tar(name: string, items: TarItem[], end?: Buffer): HostileTar {
  return { name, bytes: () => buildTar([GOOD, ...items], end) }
}

function bytes(name: string, build: () => Buffer): HostileTar {
  return { name, bytes: build }
}

function named(what: string, entryName: string): HostileTar {
  return tar(`unsafe_archive--${what}`, [file(entryName, 'evil')])
}

function typed(what: string, type: string, more: Partial<TarItem> = {}): HostileTar {
  return tar(`unsafe_archive--${what}`, [{ name: 'x', type, ...more }])
}

function sized(what: string, rawSize: Buffer): HostileTar {
  return tar(`invalid_archive--size-${what}`, [file('x', 'abc', { fields: { rawSize } })])
}

function announced(name: string, items: TarItem[]): HostileTar {
  return tar(name, [...items, file('x', 'evil')])
}

/** A tar whose entry for the root directory contains further members as its data. */
function rootWithData(what: string, root: string, { paxSize, ...more }: Partial<TarItem> & { paxSize?: number }): HostileTar {
  const announcement = paxSize === undefined ? [] : [pax({ size: String(paxSize) })]
  return tar(`unsafe_archive--${what}`, [...announcement, directory(root, { data: HIDDEN, ...more })])
}

function base256(value: bigint): Buffer {
  return Buffer.from((2n ** 95n + value).toString(16).padStart(24, '0'), 'hex')
}

const names: HostileTar[] = [
  named('dotdot-first', '../evil'),
  named('dotdot-in-the-middle', 'a/../../evil'),
  named('dotdot-after-dot-slash', './../evil'),
  named('dotdot-that-stays-inside', 'a/../b'),
  named('absolute', '/etc/cron.d/evil'),
  named('absolute-after-dot-slash', './/etc/evil'),
  named('dot-slash-twice', '././a'),
  named('dot-in-the-middle', 'a/./b'),
  named('a-file-as-the-root', '.'),
  named('empty-name', ''),
  named('empty-component', 'a//b'),
  named('backslash', 'a\\..\\evil'),
  named('drive-letter', 'C:/evil'),
  named('control-character', 'a\u0007b'),
  tar('unsafe_archive--name-not-utf8', [file('x', '', { fields: { rawName: Buffer.from([0x61, 0xff, 0x62]) } })]),
  tar('unsafe_archive--absolute-by-prefix', [file('evil', 'x', { fields: { prefix: '/etc' } })]),
  tar('unsafe_archive--dotdot-by-prefix', [file('evil', 'x', { fields: { prefix: '..' } })]),
  tar('unsafe_archive--pax-path-absolute', [pax({ path: '/etc/evil' }), file('x', 'evil')]),
  tar('unsafe_archive--pax-path-dotdot', [pax({ path: '../evil' }), file('x', 'evil')]),
  tar('unsafe_archive--pax-path-nul', [pax({ path: 'a\0/../../evil' }), file('x', 'evil')]),
  tar('unsafe_archive--pax-path-not-utf8', [pax({ path: Buffer.from([0x61, 0xff]) }), file('x', 'evil')]),
  tar('unsafe_archive--gnu-name-dotdot', [gnuLong('L', `../${LONG}`), file('x', 'evil')]),
  tar('unsafe_archive--gnu-name-empty', [gnuLong('L', ''), file('x', 'evil')]),
  tar('unsafe_archive--listed-twice', [file('a', '1'), file('a', '2')]),
  tar('unsafe_archive--listed-twice-with-dot-slash', [file('a', '1'), file('./a', '2')]),
  tar('unsafe_archive--listed-twice-by-pax', [file('a', '1'), pax({ path: 'a' }), file('b', '2')]),
  tar('unsafe_archive--listed-twice-in-another-composition', [file('\u00e9', '1'), file('e\u0301', '2')]),
  tar('unsafe_archive--file-and-directory', [file('a', '1'), file('a/b', '2')]),
  tar('unsafe_archive--directory-and-file', [file('a/b', '1'), file('a', '2')]),
  tar('unsafe_archive--directory-and-symlink', [file('a/b', '1'), symlink('a', '.')]),
  tar('unsafe_archive--dotdot-before-the-last', [...MANY, file('../evil', 'evil'), file('last', 'good')]),
]

const types: HostileTar[] = [
  typed('hard-link', '1', { target: 'good.txt' }),
  typed('hard-link-with-data', '1', { target: 'good.txt', data: 'evil' }),
  typed('hard-link-out', '1', { target: '/etc/shadow' }),
  typed('character-device', '3'),
  typed('block-device', '4'),
  typed('fifo', '6'),
  typed('contiguous-file', '7'),
  typed('gnu-sparse', 'S', { data: 'abc', fields: { magic: GNU } }),
  typed('gnu-multi-volume', 'M', { fields: { magic: GNU } }),
  typed('gnu-dump-directory', 'D', { fields: { magic: GNU } }),
  typed('gnu-volume-name', 'V', { fields: { magic: GNU } }),
  typed('gnu-old-long-name', 'N', { data: 'abc', fields: { magic: GNU } }),
  typed('solaris-pax', 'X', { data: paxRecord('path', 'evil') }),
  typed('unknown-type', 'Z'),
  tar('unsafe_archive--pax-sparse-0', [pax({ 'GNU.sparse.size': '9', 'GNU.sparse.map': '0,3' }), file('x', 'abc')]),
  tar('unsafe_archive--pax-sparse-1', [pax({ 'GNU.sparse.major': '1', 'GNU.sparse.minor': '0' }), file('x', 'abc')]),
  tar('unsafe_archive--pax-sparse-of-star', [pax({ 'SCHILY.realsize': '9' }), file('x', 'abc')]),
  tar('unsafe_archive--pax-sparse-of-solaris', [pax({ 'SUN.holesdata': ' 0 1 3' }), file('x', 'abc')]),
  tar('unsafe_archive--directory-with-data', [directory('d/', { data: 'evil' })]),
  tar('unsafe_archive--directory-by-name-with-data', [file('d/', 'evil')]),
  rootWithData('root-with-data', './', {}),
  rootWithData('root-of-one-dot-with-data', '.', {}),
  rootWithData('root-with-data-by-header-and-pax', './', { paxSize: HIDDEN.length }),
  rootWithData('root-of-one-dot-with-data-by-header-and-pax', '.', { paxSize: HIDDEN.length }),
  rootWithData('root-with-data-by-pax', './', { paxSize: HIDDEN.length, size: 0 }),
  rootWithData('root-of-one-dot-with-data-by-pax', '.', { paxSize: HIDDEN.length, size: 0 }),
  tar('unsafe_archive--directory-only-by-its-name', [file('d/')]),
  tar('unsafe_archive--directory-only-by-its-name-of-type-nul', [file('d/', '', { type: '\0' })]),
  tar('unsafe_archive--directory-only-by-its-name-in-the-oldest-format', [file('d/', '', { type: '\0', fields: { magic: V7 } })]),
  tar('unsafe_archive--directory-only-by-its-pax-path', [pax({ path: 'd/' }), file('d', '', { type: '\0' })]),
  tar('unsafe_archive--directory-only-by-its-gnu-name', [gnuLong('L', 'd/'), file('d')]),
]

const symlinks: HostileTar[] = [
  tar('unsafe_archive--symlink-absolute', [symlink('l', '/etc/passwd')]),
  tar('unsafe_archive--symlink-out', [symlink('l', '../x')]),
  tar('unsafe_archive--symlink-up-from-nothing', [symlink('l', 'nothing/../good.txt')]),
  tar('unsafe_archive--symlink-out-behind-another', [directory('d/e/'), symlink('l', 'd/e'), symlink('d/m', '../l/../../../x')]),
  tar('unsafe_archive--symlink-loop', [symlink('a', 'b'), symlink('b', 'a')]),
  tar('unsafe_archive--symlink-without-target', [symlink('l', '')]),
  tar('unsafe_archive--symlink-then-write-through', [symlink('l', '.'), file('l/evil', 'evil')]),
  tar('unsafe_archive--symlink-then-same-name', [symlink('l', 'good.txt'), file('l', 'evil')]),
  tar('unsafe_archive--symlink-with-data', [symlink('l', 'good.txt', { data: 'evil' })]),
  tar('unsafe_archive--symlink-with-data-by-pax', [pax({ size: '4' }), symlink('l', 'good.txt')]),
  tar('unsafe_archive--symlink-out-by-pax', [pax({ linkpath: '../../etc' }), symlink('l', 'good.txt')]),
  tar('unsafe_archive--symlink-out-by-gnu', [gnuLong('K', `../${LONG}`), symlink('l', 'good.txt')]),
  tar('unsafe_archive--symlink-not-utf8', [pax({ linkpath: Buffer.from([0xff]) }), symlink('l', 'good.txt')]),
  tar('unsafe_archive--target-of-a-file-not-utf8', [pax({ linkpath: Buffer.from([0xff]) }), file('x', '')]),
]

const headers: HostileTar[] = [
  tar('invalid_archive--checksum-wrong', [file('x', '', { fields: { rawChecksum: Buffer.from('0001234\0') } })]),
  tar('invalid_archive--checksum-empty', [file('x', '', { fields: { rawChecksum: Buffer.alloc(8) } })]),
  tar('invalid_archive--magic-unknown', [file('x', '', { fields: { magic: 'tarball\0' } })]),
  tar('invalid_archive--prefix-without-magic', [file('x', '', { fields: { magic: V7, prefix: 'elsewhere' } })]),
  tar('invalid_archive--prefix-with-gnu-magic', [file('x', '', { fields: { magic: GNU, prefix: 'elsewhere' } })]),
  tar('invalid_archive--magic-version-unknown', [file('x', '', { fields: { magic: 'ustar\x0099' } })]),
  tar('invalid_archive--mode-not-octal', [file('x', '', { fields: { rawMode: Buffer.from('rwxr-xr\0') } })]),
  sized('base256', base256(3n)),
  sized('base256-of-10-gib', base256(10n * 2n ** 30n)),
  sized('negative-base256', Buffer.alloc(12, 0xff)),
  sized('negative', Buffer.from('-0000000003\0')),
  sized('hexadecimal', Buffer.from('0x000000003\0')),
  sized('with-an-8', Buffer.from('00000000008\0')),
  sized('empty', Buffer.alloc(12)),
  sized('two-numbers', Buffer.from('3 3        \0')),
  sized('hidden-behind-nul', Buffer.from('\x0000000000003')),
]

const pairs = { path: 'a', size: '4' }

const words: HostileTar[] = [
  announced('invalid_archive--pax-too-large', [pax({ comment: 'x'.repeat(64 * KIB) })]),
  announced('invalid_archive--pax-too-large-together', [pax({ comment: 'x'.repeat(40 * KIB) }, 'g'), pax({ comment: 'x'.repeat(40 * KIB) })]),
  announced('invalid_archive--gnu-name-too-large', [gnuLong('L', 'x'.repeat(64 * KIB))]),
  announced('invalid_archive--pax-empty', [{ name: 'x', type: 'x' }]),
  announced('invalid_archive--pax-twice', [pax(pairs), pax({ path: 'b' })]),
  announced('invalid_archive--gnu-name-twice', [gnuLong('L', LONG), gnuLong('L', 'b')]),
  announced('invalid_archive--pax-then-gnu-name', [pax(pairs), gnuLong('L', LONG)]),
  announced('invalid_archive--gnu-name-then-pax', [gnuLong('L', LONG), pax(pairs)]),
  announced('invalid_archive--gnu-name-with-more-after-its-end', [gnuLong('L', 'a\0b')]),
  announced('invalid_archive--pax-key-twice', [{ ...pax({}), data: Buffer.concat([paxRecord('path', 'a'), paxRecord('path', 'b')]) }]),
  announced('invalid_archive--pax-path-empty', [pax({ path: '' })]),
  announced('invalid_archive--pax-linkpath-empty', [pax({ linkpath: '' })]),
  tar('invalid_archive--pax-size-where-the-header-has-none', [pax({ size: '512' }), file('x', buildTar([file('evil')]).subarray(0, 512), { size: 0 })]),
  announced('invalid_archive--pax-size-smaller-than-the-header', [pax({ size: '3' })]),
  announced('invalid_archive--pax-size-larger-than-the-header', [pax({ size: '5' })]),
  announced('invalid_archive--pax-size-negative', [pax({ size: '-4' })]),
  announced('invalid_archive--pax-size-empty', [pax({ size: '' })]),
  announced('invalid_archive--pax-size-with-spaces', [pax({ size: ' 4' })]),
  announced('invalid_archive--pax-size-hexadecimal', [pax({ size: '0x4' })]),
  announced('invalid_archive--pax-size-beyond-2-to-the-53', [pax({ size: '9007199254740993' })]),
  announced('invalid_archive--pax-record-too-long', [{ ...pax({}), data: '999 path=a\n' }]),
  announced('invalid_archive--pax-record-too-short', [{ ...pax({}), data: '5 path=a\n' }]),
  announced('invalid_archive--pax-record-of-length-0', [{ ...pax({}), data: '0 path=a\n' }]),
  announced('invalid_archive--pax-record-without-length', [{ ...pax({}), data: 'path=a\n' }]),
  announced('invalid_archive--pax-record-without-equals', [{ ...pax({}), data: '8 patha\n' }]),
  announced('invalid_archive--pax-record-without-key', [{ ...pax({}), data: '5 =a\n' }]),
  announced('invalid_archive--pax-record-without-line-feed', [{ ...pax({}), data: '9 path=ab' }]),
  announced('invalid_archive--pax-zeros-after-the-records', [{ ...pax({}), data: '10 path=a\n\0\0' }]),
  announced('invalid_archive--pax-global-path', [pax({ path: 'evil' }, 'g')]),
  announced('invalid_archive--pax-global-size', [pax({ size: '0' }, 'g')]),
  announced('invalid_archive--pax-global-linkpath', [pax({ linkpath: '/etc' }, 'g')]),
  announced('invalid_archive--pax-global-sparse-of-solaris', [pax({ 'SUN.holesdata': ' 0 4' }, 'g')]),
  announced('invalid_archive--pax-global-sparse', [pax({ 'GNU.sparse.major': '1' }, 'g')]),
  tar('invalid_archive--pax-before-nothing', [pax({ path: 'a' })]),
  tar('invalid_archive--gnu-name-before-nothing', [gnuLong('L', LONG)]),
]

const two = () => buildTar([GOOD, file('b', 'b')])

const ends: HostileTar[] = [
  bytes('invalid_archive--no-end', () => buildTar([GOOD], Buffer.alloc(0))),
  bytes('invalid_archive--one-block-of-zeros-as-end', () => buildTar([GOOD], Buffer.alloc(512))),
  bytes('invalid_archive--end-incomplete', () => buildTar([GOOD], Buffer.alloc(1100))),
  bytes('invalid_archive--ends-in-a-header', () => two().subarray(0, 1024 + 300)),
  bytes('invalid_archive--ends-in-data', () => two().subarray(0, 1024 + 512 + 1)),
  bytes('invalid_archive--ends-in-padding', () => two().subarray(0, 1024 + 512 + 100)),
  bytes('invalid_archive--ends-in-pax', () => buildTar([GOOD, pax({ path: 'a' })], Buffer.alloc(0)).subarray(0, -100)),
  bytes('invalid_archive--nothing-at-all', () => Buffer.alloc(0)),
  bytes('invalid_archive--text', () => Buffer.from('hello '.repeat(1000))),
  tar('invalid_archive--another-archive-after-the-end', [], Buffer.concat([TAR_END, buildTar([file('evil')])])),
  tar('invalid_archive--member-after-one-block-of-zeros', [], Buffer.concat([Buffer.alloc(512), buildTar([file('evil')])])),
  tar('invalid_archive--other-bytes-after-the-end', [], Buffer.concat([TAR_END, Buffer.alloc(511), Buffer.from('x')])),
  tar('invalid_archive--size-beyond-the-end', [file('x', 'abc', { size: 4096 })]),
  bytes('empty_artifact--only-the-end', () => TAR_END),
  bytes('empty_artifact--only-the-root', () => buildTar([directory('./')])),
  bytes('empty_artifact--only-directories', () => buildTar([directory('./'), directory('./a/')])),
]

const sizes: HostileTar[] = [
  tar('archive_too_large--declares-8-gib', [file('x', '', { size: 8 * 1024 * MIB - 1 })]),
  tar('archive_too_large--declares-it-by-pax', [pax({ size: '999999999999' }), file('x')]),
  tar('archive_too_large--declares-a-byte-too-much', [file('x', '', { size: 4 * MIB - 3 })]),
  tar('archive_too_large--all-together', [file('x', NOISE), file('y', '', { size: 2 * MIB })]),
  tar('archive_too_large--too-many-entries', Array.from({ length: 50 }, (_, index) => file(`f${index}`))),
  tar('archive_too_large--too-many-pax-bytes', Array.from({ length: 40 }, (_, index) => [pax({ comment: 'x'.repeat(60 * KIB) }), file(`f${index}`)]).flat()),
  tar('archive_too_large--too-many-implied-directories', [pax({ path: `${'a/'.repeat(51)}f` }), file('f')]),
]

export const HOSTILE_TARS: readonly HostileTar[] = [...names, ...types, ...symlinks, ...headers, ...words, ...ends, ...sizes]
