import { crc32, deflateRawSync } from 'node:zlib'
import { buildZip, directory, extraField, FILE, file, SYMLINK, symlink, unicodePath, UTF8_NAME, type ZipItem, type ZipShape, zip64Extra } from './zip-builder.ts'

export interface HostileZip {
  /** `<code>--<fault>`. */
  readonly name: string
  readonly bytes: () => Buffer
  readonly platform?: NodeJS.Platform
  /** Only an entry's data shows the fault, so the files before that entry have been written. */
  readonly onlyWhileExtracting?: true
}

/** Limits that some of these archives exceed. */
export const HOSTILE_LIMITS = { maxExtractedBytes: 8 * 1024 * 1024, maxEntries: 50 }

const KIB = 1024
const MIB = 1024 * KIB
const GOOD = file('good.txt')
const UNIX_TYPE = { fifo: 0o010644, characterDevice: 0o020644, blockDevice: 0o060644, socket: 0o140644, unknown: 0o110644 }

function zip(name: string, items: ZipItem[], shape: ZipShape = {}): HostileZip {
  return { name, bytes: () => buildZip(items, shape) }
}

function named(what: string, entryName: string, more: Partial<ZipItem> = {}): HostileZip {
  return zip(`unsafe_archive--${what}`, [GOOD, { ...file(entryName, 'evil'), ...more }])
}

/** An entry whose name has bytes that no string can produce. */
function rawNamed(what: string, rawName: Buffer, flags: number): HostileZip {
  return named(what, 'x', { both: { rawName, flags } })
}

function onPlatform(platform: NodeJS.Platform, what: string, names: string[]): HostileZip {
  return { ...zip(`unsafe_archive--${platform}-${what}`, [GOOD, ...names.map(name => file(name))]), platform }
}

function whileExtracting(name: string, item: ZipItem): HostileZip {
  return { ...zip(name, [item]), onlyWhileExtracting: true }
}

const names: HostileZip[] = [
  named('dotdot-first', '../evil'),
  named('dotdot-in-the-middle', 'a/../../evil'),
  named('dotdot-that-stays-inside', 'a/../b'),
  named('dotdot-last', 'a/..'),
  named('dotdot-alone', '..'),
  named('dotdot-directory', '../', { mode: 0o040755 }),
  named('dotdot-after-flattening', 'x', { both: { rawName: Buffer.from('good.txt/../../x') } }),
  zip('unsafe_archive--dotdot-as-top-level', [file('../a'), file('../b')]),
  zip('unsafe_archive--drive-letter-after-flattening', [file('top/C:/evil'), file('top/b')]),
  zip('unsafe_archive--absolute-after-flattening', [file('top//evil'), file('top/b')]),
  named('dot-component', 'a/./b'),
  named('dot-twice', '././a'),
  named('empty-component', 'a//b'),
  named('two-final-slashes', 'a//', { mode: 0o040755 }),
  named('empty-name', ''),
  named('slash-alone', '/', { mode: 0o040755 }),
  named('absolute', '/etc/cron.d/evil'),
  named('absolute-network', '//server/share/evil'),
  named('drive-letter', 'C:/Windows/evil'),
  named('drive-letter-relative', 'c:evil'),
  named('backslash-dotdot', '..\\evil'),
  named('backslash-separator', 'a\\b'),
  named('nul', 'a\0b'),
  named('newline', 'a\nb'),
  named('carriage-return', 'a\rb'),
  named('escape', 'a\u001b[2Jb'),
  named('delete-character', 'a\u007fb'),
  named('c1-control', 'a\u0085b'),
  rawNamed('bad-utf8', Buffer.from([0x61, 0xff, 0x62]), UTF8_NAME),
  rawNamed('overlong-utf8-slash', Buffer.from([0x2e, 0x2e, 0xc0, 0xaf, 0x61]), UTF8_NAME),
  rawNamed('utf8-surrogate', Buffer.from([0xed, 0xa0, 0x80]), UTF8_NAME),
  rawNamed('cut-utf8', Buffer.from([0x61, 0xe2, 0x82]), UTF8_NAME),
  rawNamed('utf8-without-its-flag', Buffer.from('grün'), 0),
  rawNamed('code-page-437', Buffer.from([0x67, 0x72, 0x81, 0x6e]), 0),
  named('unicode-path-differs', 'safe', { both: { extra: unicodePath(Buffer.from('safe'), '../evil') } }),
  named('unicode-path-differs-centrally', 'safe', { central: { extra: unicodePath(Buffer.from('safe'), 'other') } }),
  named('unicode-path-differs-locally', 'safe', { local: { extra: unicodePath(Buffer.from('safe'), 'other') } }),
  named('unicode-path-differs-without-the-flag', 'gr\u00fcn', { both: { flags: 0, extra: unicodePath(Buffer.from('grün'), 'grun') } }),
  zip('invalid_archive--unicode-path-of-another-version', [{ ...GOOD, both: { extra: unicodePath(Buffer.from('good.txt'), 'good.txt', 2) } }]),
  zip('invalid_archive--unicode-path-for-another-name', [{ ...GOOD, both: { extra: unicodePath(Buffer.from('other'), 'good.txt') } }]),
  zip('invalid_archive--unicode-path-cut-short', [{ ...GOOD, both: { extra: extraField(0x7075, Buffer.from([1, 0])) } }]),
  named('name-of-256-bytes', 'n'.repeat(256)),
  named('name-of-256-bytes-in-utf8', 'ü'.repeat(128)),
  named('path-of-4097-bytes', `${'p'.repeat(241)}/${Array.from({ length: 16 }, () => 'p'.repeat(240)).join('/')}`),
  named('65-levels', Array.from({ length: 65 }, () => 'd').join('/')),
]

const platforms: HostileZip[] = [
  onPlatform('darwin', 'equal-without-case', ['Readme', 'README']),
  onPlatform('darwin', 'equal-directories-without-case', ['src/a', 'Src/b']),
  onPlatform('darwin', 'equal-by-full-case-folding', ['straße', 'STRASSE']),
  onPlatform('darwin', 'equal-by-ignored-character', ['a', 'a\u200d']),
  onPlatform('darwin', 'colon', ['a:b']),
  onPlatform('darwin', 'resource-fork', ['a/..namedfork/rsrc']),
  onPlatform('win32', 'equal-without-case', ['Readme', 'README']),
  onPlatform('win32', 'device', ['a/NUL']),
  onPlatform('win32', 'device-with-ending', ['com1.txt']),
  onPlatform('win32', 'device-superscript', ['lpt¹']),
  onPlatform('win32', 'alternate-stream', ['file:stream']),
  onPlatform('win32', 'final-dot', ['a.']),
  onPlatform('win32', 'final-space', ['a /b']),
  onPlatform('win32', 'wildcard', ['a*']),
]

const sameNames: HostileZip[] = [
  zip('unsafe_archive--same-file-twice', [file('a', '1'), file('a', '2')]),
  zip('unsafe_archive--same-directory-twice', [GOOD, directory('d/'), directory('d/')]),
  zip('unsafe_archive--same-top-level-twice', [directory('d/'), directory('d/'), file('d/a')]),
  zip('unsafe_archive--equal-in-nfc', [file('\u00e9'), file('e\u0301')]),
  zip('unsafe_archive--equal-directories-in-nfc', [file('\u00e9/a'), file('e\u0301/b')]),
  zip('unsafe_archive--listed-and-implied-directory-equal-in-nfc', [file('\u00e9/a'), directory('e\u0301/'), GOOD]),
  zip('unsafe_archive--file-as-directory', [file('a'), file('a/b')]),
  zip('unsafe_archive--directory-as-file', [file('a/b'), file('a')]),
  zip('unsafe_archive--file-and-directory', [GOOD, file('a'), directory('a/')]),
  zip('unsafe_archive--symlink-and-file', [GOOD, symlink('a', 'good.txt'), file('a')]),
  zip('unsafe_archive--below-a-symlink', [GOOD, directory('d/'), symlink('l', 'd'), file('l/evil')]),
  zip('unsafe_archive--below-a-later-symlink', [GOOD, directory('d/'), file('l/evil'), symlink('l', 'd')]),
]

/** A symlink by its Unix mode, made by another system. Some tools obey that mode, and others create a file. */
function madeBy(system: number, what: string, mode: number): HostileZip {
  return zip(`unsafe_archive--${what}-by-system-${system}`, [GOOD, { ...symlink('x', 'good.txt'), mode, system }])
}

/** The value of an ASi Unix field that makes an entry a symlink. */
function asiLink(target: string): Buffer {
  const value = Buffer.concat([Buffer.alloc(10), Buffer.from(target)])
  value.writeUInt16LE(SYMLINK, 0)
  value.writeUInt32LE(target.length, 2)
  const crc = Buffer.alloc(4)
  crc.writeUInt32LE(crc32(value))
  return extraField(0x756e, Buffer.concat([crc, value]))
}

/** libarchive's own extra field, which makes an entry a symlink: its flags, the system and the attributes. */
function libarchiveLink(): Buffer {
  const value = Buffer.from([0x05, 0x14, 0x03, 0, 0, 0, 0])
  value.writeUInt32LE((SYMLINK << 16) >>> 0, 3)
  return extraField(0x6c78, value)
}

const types: HostileZip[] = [
  ...[5, 10, 16, 19, 30].map(system => madeBy(system, 'symlink', SYMLINK)),
  madeBy(5, 'fifo', UNIX_TYPE.fifo),
  madeBy(19, 'character-device', UNIX_TYPE.characterDevice),
  named('type-by-asi-unix-field', 'x', { both: { extra: asiLink('/etc/passwd') } }),
  named('type-by-asi-unix-field-of-the-directory', 'x', { central: { extra: asiLink('/etc/passwd') } }),
  named('type-by-asi-unix-field-of-the-local-header', 'x', { local: { extra: asiLink('/etc/passwd') } }),
  named('type-by-libarchive-field-of-the-local-header', 'x', { local: { extra: libarchiveLink() } }),
  named('type-by-libarchive-field-of-the-directory', 'x', { central: { extra: libarchiveLink() } }),
  named('fifo', 'x', { mode: UNIX_TYPE.fifo }),
  named('character-device', 'x', { mode: UNIX_TYPE.characterDevice }),
  named('block-device', 'x', { mode: UNIX_TYPE.blockDevice }),
  named('socket', 'x', { mode: UNIX_TYPE.socket }),
  named('unknown-type', 'x', { mode: UNIX_TYPE.unknown }),
  named('directory-type-with-a-file-name', 'x', { mode: 0o040755, data: '' }),
  named('dos-directory-with-a-file-name', 'x', { mode: 0, dosAttributes: 0x10, data: '' }),
  named('file-type-with-a-directory-name', 'x/', { mode: FILE, data: '' }),
  named('directory-with-data', 'x/', { mode: 0o040755 }),
  named('directory-with-packed-data', 'x/', { mode: 0o040755, data: '', packed: Buffer.from('hidden') }),
]

const symlinks: HostileZip[] = [
  zip('unsafe_archive--symlink-absolute', [GOOD, symlink('l', '/etc/passwd')]),
  zip('unsafe_archive--symlink-drive', [GOOD, symlink('l', 'C:/x')]),
  zip('unsafe_archive--symlink-escapes', [GOOD, symlink('l', '../outside')]),
  zip('unsafe_archive--symlink-escapes-and-returns', [GOOD, file('t/x'), symlink('l', '../t/x')]),
  zip('unsafe_archive--symlink-escapes-in-the-middle', [GOOD, file('d/x'), symlink('l', 'd/../../good.txt')]),
  zip('unsafe_archive--symlink-escapes-only-after-flattening', [file('top/a'), symlink('top/l', '../top/a')]),
  zip('unsafe_archive--symlink-dangles-on-the-way', [GOOD, symlink('l', 'nothing/../good.txt')]),
  zip('unsafe_archive--symlink-to-itself', [GOOD, symlink('l', 'l')]),
  zip('unsafe_archive--symlink-out-through-a-symlink', [GOOD, file('d/e/x'), symlink('l', 'd/e'), symlink('d/m', '../l/../../../x')]),
  zip('unsafe_archive--symlink-loop-through-a-directory', [GOOD, symlink('d/a', '../b'), symlink('b', 'd/a/x')]),
  zip('unsafe_archive--symlink-loop', [GOOD, symlink('a', 'b'), symlink('b', 'a')]),
  zip('unsafe_archive--symlink-through-a-file', [GOOD, symlink('l', 'good.txt/../good.txt')]),
  zip('unsafe_archive--symlink-to-a-file-as-directory', [GOOD, symlink('l', 'good.txt/')]),
  zip('unsafe_archive--symlink-other-spelling', [GOOD, file('\u00e9'), symlink('l', 'e\u0301')]),
  zip('unsafe_archive--symlink-empty', [GOOD, symlink('l', '')]),
  zip('unsafe_archive--symlink-backslash', [GOOD, symlink('l', 'd\\x')]),
  zip('unsafe_archive--symlink-nul', [GOOD, symlink('l', 'good.txt\0')]),
  zip('unsafe_archive--symlink-bad-utf8', [GOOD, { name: 'l', data: Buffer.from([0xff]), mode: SYMLINK, stored: true }]),
  zip('unsafe_archive--symlink-huge-target', [GOOD, symlink('l', './'.repeat(3 * KIB))]),
  zip('unsafe_archive--symlink-huge-target-judged-before-it-is-read', [GOOD, { ...symlink('l', './'.repeat(3 * KIB)), both: { crc: 1 } }]),
  zip('unsafe_archive--symlink-many-components', [GOOD, symlink('l', `${'./'.repeat(100)}good.txt`)]),
  zip('unsafe_archive--symlink-directory-name', [GOOD, symlink('l/', 'good.txt')]),
  zip('invalid_archive--symlink-wrong-crc', [GOOD, { ...symlink('l', 'good.txt'), both: { crc: 1 } }]),
  zip('invalid_archive--symlink-padded', [GOOD, { ...symlink('l', 'good.txt'), stored: false, packed: Buffer.concat([deflateRawSync(Buffer.from('good.txt')), Buffer.alloc(2 * MIB)]) }]),
]

/** A local header with its data, for an entry that no directory lists. */
const HIDDEN = buildZip([file('hidden', 'evil')]).subarray(0, 30 + 'hidden'.length + deflateRawSync(Buffer.from('evil')).length)

const STREAMED: Partial<ZipItem> = { stored: true, descriptor: true }

function damaged(what: string, item: Partial<ZipItem>): HostileZip {
  return zip(`invalid_archive--${what}`, [GOOD, { ...file('x', 'some data'), ...item }])
}

const headers: HostileZip[] = [
  damaged('encrypted', { both: { flags: 0x0001 } }),
  damaged('encrypted-only-centrally', { central: { flags: 0x0001 } }),
  damaged('encrypted-only-locally', { local: { flags: 0x0001 } }),
  damaged('patched', { both: { flags: 0x0020 } }),
  damaged('strongly-encrypted', { both: { flags: 0x0040 } }),
  damaged('masked', { both: { flags: 0x2000 } }),
  damaged('method-1', { both: { method: 1 } }),
  damaged('method-9', { both: { method: 9 } }),
  damaged('method-12', { both: { method: 12 } }),
  damaged('method-14', { both: { method: 14 } }),
  damaged('method-93', { both: { method: 93 } }),
  damaged('method-99', { both: { method: 99 } }),
  damaged('local-name-differs', { local: { rawName: Buffer.from('y') } }),
  damaged('local-name-longer', { local: { rawName: Buffer.from('xy') } }),
  damaged('local-method-differs', { local: { method: 0 } }),
  damaged('local-crc-differs', { local: { crc: 1 } }),
  damaged('local-size-differs', { local: { size: 1 } }),
  damaged('local-packed-size-differs', { local: { packedSize: 1 } }),
  damaged('local-zip64-size-differs', { local: { size: 0xffffffff, extra: zip64Extra(8) } }),
  damaged('local-signature', { local: { signature: 0x04034b51 } }),
  damaged('central-signature', { central: { signature: 0x02014b51 } }),
  damaged('on-another-disk', { central: { disk: 1 } }),
  damaged('local-header-beyond-the-end', { central: { offset: 0x7fffffff } }),
  damaged('local-header-in-the-directory', { central: { offset: 60 } }),
  damaged('stored-with-two-sizes', { stored: true, both: { size: 5 } }),
  damaged('extra-field-cut-short', { central: { extra: Buffer.from([1, 0, 9, 0, 0]) } }),
  damaged('extra-zip64-twice', { central: { extra: Buffer.concat([zip64Extra(1), zip64Extra(2)]) } }),
  damaged('extra-zip64-missing', { central: { size: 0xffffffff } }),
  damaged('extra-zip64-cut-short', { central: { size: 0xffffffff, extra: Buffer.from([1, 0, 4, 0, 9, 0, 0, 0]) } }),
  damaged('extra-zip64-beyond-all-measure', { central: { size: 0xffffffff, extra: Buffer.concat([Buffer.from([1, 0, 8, 0]), Buffer.alloc(8, 0xff)]) } }),
  damaged('data-beyond-the-directory', { both: { packedSize: 5000 } }),
  damaged('local-name-in-another-encoding', { name: 'grün', local: { flags: 0 } }),
  damaged('descriptor-and-another-local-crc', { descriptor: true, local: { crc: 1 } }),
  damaged('descriptor-and-another-local-size', { descriptor: true, local: { size: 1 } }),
  damaged('descriptor-and-another-local-packed-size', { descriptor: true, local: { packedSize: 1 } }),
  damaged('descriptor-and-another-local-zip64-size', { descriptor: true, local: { size: 0xffffffff, packedSize: 0xffffffff, extra: zip64Extra(1, 1) } }),
  damaged('descriptor-and-another-local-size-stored', { descriptor: true, stored: true, local: { size: 1, packedSize: 1 } }),
  damaged('descriptor-missing', { both: { flags: 0x0008 } }),
  damaged('descriptor-of-other-sizes', { both: { flags: 0x0008 }, behind: descriptorOf({ size: 1 }) }),
  damaged('descriptor-with-another-crc', { both: { flags: 0x0008 }, behind: descriptorOf({ crc: 1 }) }),
  damaged('descriptor-with-more-after-it', { descriptor: true, behind: Buffer.alloc(8) }),
  damaged('descriptor-not-announced', { behind: descriptorOf({}) }),
  damaged('entry-hidden-behind-a-descriptor', { descriptor: true, behind: HIDDEN }),
  damaged('entry-hidden-in-stored-data-behind-a-descriptor', { ...STREAMED, data: Buffer.concat([Buffer.from('some data'), descriptorOf({}), HIDDEN]) }),
  damaged('descriptor-in-stored-data-of-saturated-size', { ...STREAMED, data: descriptorOf({}), local: { size: 0xffffffff, packedSize: 0xffffffff } }),
  damaged('descriptor-in-stored-data-across-two-reads', { ...STREAMED, data: Buffer.concat([Buffer.alloc(MIB - 2), descriptorOf({})]) }),
  damaged('descriptor-without-its-signature-after-stored-data', { stored: true, both: { flags: 8 }, local: { crc: 0, size: 0, packedSize: 0 }, behind: storedDescriptor() }),
]

/** The descriptor of `some data`, stored, without the signature. */
function storedDescriptor(): Buffer {
  const bytes = Buffer.from(descriptorOf({}).subarray(4))
  bytes.writeUInt32LE('some data'.length, 4)
  return bytes
}

/** The descriptor of `some data`, with the false values of `lie`. */
function descriptorOf(lie: { crc?: number; size?: number }): Buffer {
  const data = Buffer.from('some data')
  const bytes = Buffer.alloc(16)
  bytes.writeUInt32LE(0x08074b50, 0)
  bytes.writeUInt32LE(lie.crc ?? crc32(data), 4)
  bytes.writeUInt32LE(deflateRawSync(data).length, 8)
  bytes.writeUInt32LE(lie.size ?? data.length, 12)
  return bytes
}

const END_MARK = Buffer.from('PK\x05\x06', 'latin1')
const ZIP64_SHAPE: ZipShape = { zip64: {}, end: { count: 0xffff, size: 0xffffffff, offset: 0xffffffff } }

function structure(what: string, shape: ZipShape, items: ZipItem[] = [GOOD, file('x')]): HostileZip {
  return zip(`invalid_archive--${what}`, items, shape)
}

function zip64Lie(what: string, lie: NonNullable<ZipShape['zip64']>): HostileZip {
  return structure(`zip64-${what}`, { ...ZIP64_SHAPE, zip64: lie })
}

const structures: HostileZip[] = [
  structure('prefix', { prefix: Buffer.from('#!/bin/sh\n') }),
  structure('junk-before-the-first-entry', { beforeEntries: Buffer.from('#!/bin/sh\n') }),
  structure('entry-hidden-before-the-first', { beforeEntries: HIDDEN }),
  structure('entry-hidden-between-two', {}, [{ ...GOOD, behind: HIDDEN }, file('x')]),
  structure('entry-hidden-before-the-directory', { beforeDirectory: HIDDEN }),
  structure('bytes-between-two-entries', {}, [{ ...GOOD, behind: Buffer.alloc(1) }, file('x')]),
  structure('bytes-before-the-directory', { beforeDirectory: Buffer.alloc(12) }),
  structure('zip64-extensible-sector', { ...ZIP64_SHAPE, zip64: { extensible: Buffer.from('more') } }),
  structure('end-record-in-the-comment', { comment: Buffer.concat([buildZip([file('evil')]).subarray(-22), Buffer.from('more')]) }),
  structure('end-record-mark-in-the-comment', { comment: Buffer.from('PK\x05\x06 is how one starts', 'latin1') }),
  structure('trailing-data', { trailing: Buffer.from('more') }),
  structure('trailing-zeros', { trailing: Buffer.alloc(512) }),
  structure('two-end-records', { comment: Buffer.concat([END_MARK, Buffer.alloc(18)]) }),
  structure('end-record-disk', { end: { disk: 1 } }),
  structure('end-record-directory-disk', { end: { directoryDisk: 1 } }),
  structure('end-record-count-here', { end: { countHere: 1 } }),
  structure('count-too-small', { end: { count: 1 } }),
  structure('count-too-large', { end: { count: 3 } }),
  structure('count-zero', { end: { count: 0 } }),
  structure('directory-offset-too-small', { end: { offset: 1 } }),
  structure('directory-offset-beyond-the-end', { end: { offset: 0x7fffffff } }),
  structure('directory-size-too-small', { end: { size: 10 } }),
  structure('directory-size-zero', { end: { size: 0 } }),
  structure('data-in-directory', { inDirectory: Buffer.from('hidden data between the headers and the end record') }),
  structure('data-after-directory', { beforeEnd: Buffer.from('hidden') }),
  structure('header-cut-short', { inDirectory: Buffer.from('PK\x01\x02', 'latin1'), end: { count: 3 } }),
  structure('zip64-without-saturation', { zip64: {} }),
  zip64Lie('locator-offset-wrong', { locatorOffset: 1 }),
  zip64Lie('locator-offset-beyond-the-end', { locatorOffset: 0x7fffffff }),
  zip64Lie('locator-disk', { locatorDisk: 1 }),
  zip64Lie('locator-disks', { disks: 2 }),
  zip64Lie('record-size-wrong', { recordSize: 45 }),
  zip64Lie('record-not-at-locator', { afterRecord: Buffer.from('gap') }),
  zip64Lie('disk', { disk: 1 }),
  zip64Lie('disk-beyond-16-bits', { disk: 0x10000 }),
  zip64Lie('directory-disk', { directoryDisk: 1 }),
  zip64Lie('directory-disk-beyond-16-bits', { directoryDisk: 0x10000 }),
  zip64Lie('count-wrong', { count: 3 }),
  zip64Lie('count-here-wrong', { countHere: 1 }),
  zip64Lie('directory-offset-wrong', { offset: 1 }),
  zip64Lie('directory-size-wrong', { size: 1 }),
  structure('zip64-contradicts-the-end-record', { zip64: {}, end: { count: 1, size: 0xffffffff } }),
  { name: 'invalid_archive--zip64-stray-locator-in-the-data', bytes: strayLocator },
  { name: 'invalid_archive--truncated', bytes: () => buildZip([GOOD, file('x')]).subarray(0, -10) },
  { name: 'invalid_archive--truncated-in-the-comment', bytes: () => buildZip([GOOD], { comment: Buffer.from('hello') }).subarray(0, -1) },
  { name: 'invalid_archive--start-cut-off', bytes: () => buildZip([GOOD, file('x')]).subarray(10) },
  { name: 'invalid_archive--no-bytes', bytes: () => Buffer.alloc(0) },
  { name: 'invalid_archive--not-a-zip', bytes: () => Buffer.from('<!doctype html><title>Sign in</title>') },
  { name: 'invalid_archive--overlap-quoted', bytes: quotedOverlap },
  { name: 'invalid_archive--overlap-same-entry', bytes: sharedEntry },
]

/** The comment of the last header looks like a zip64 locator, in the place where some readers look for a locator. */
function strayLocator(): Buffer {
  const decoy = Buffer.alloc(20)
  decoy.writeUInt32LE(0x07064b50, 0)
  decoy.writeUInt32LE(1, 16)
  return buildZip([GOOD, { ...file('x'), central: { comment: decoy } }])
}

/** The first entry's data contains the whole second entry, so that the two entries overlap in the archive. */
function quotedOverlap(): Buffer {
  const inner = buildZip([file('kernel', Buffer.alloc(100 * KIB))])
  const kernelBytes = 30 + 'kernel'.length + deflateRawSync(Buffer.alloc(100 * KIB)).length
  const quoted = inner.subarray(0, kernelBytes)
  const outer: ZipItem = { ...file('quote', quoted), stored: true }
  const alias: ZipItem = { ...file('kernel', Buffer.alloc(100 * KIB)), central: { offset: 30 + 'quote'.length } }
  return buildZip([outer, alias])
}

function sharedEntry(): Buffer {
  return buildZip([file('a', 'data'), { ...file('b', 'data'), local: { rawName: Buffer.from('a') }, central: { offset: 0 } }])
}

const nothing: HostileZip[] = [
  zip('empty_artifact--no-entries', []),
  zip('empty_artifact--no-entries-with-a-comment', [], { comment: Buffer.from('nothing') }),
  zip('empty_artifact--only-a-top-level-directory', [directory('top/')]),
  zip('empty_artifact--only-directories', [directory('a/'), directory('b/'), directory('b/c/')]),
]

const LARGE = HOSTILE_LIMITS.maxExtractedBytes + 1
const sizes: HostileZip[] = [
  zip('archive_too_large--too-many-entries', Array.from({ length: 51 }, (_, index) => file(`f${index}`))),
  zip('archive_too_large--too-many-implied-directories', [GOOD, file(Array.from({ length: 52 }, () => 'd').join('/'))]),
  zip('archive_too_large--one-declared-size', [GOOD, { ...file('x'), both: { size: LARGE, packedSize: 9000 }, packed: Buffer.alloc(9000) }]),
  zip('archive_too_large--sum-of-declared-sizes', Array.from({ length: 9 }, (_, index) => ({ ...file(`f${index}`), both: { size: MIB } }))),
]

const SPREAD = Buffer.from(Array.from({ length: 2 * MIB }, (_, index) => (index * index * 31 + (index >> 7)) & 0xff))
const JUNK = Buffer.from('junk')

function lying(what: string, item: Partial<ZipItem>): HostileZip[] {
  return [
    whileExtracting(`invalid_archive--${what}`, { ...file('x', SPREAD.subarray(0, 9000)), ...item }),
    whileExtracting(`invalid_archive--${what}-large`, { ...file('x', SPREAD), ...item }),
  ]
}

const data: HostileZip[] = [
  ...lying('crc-wrong', { both: { crc: 1 } }),
  ...lying('crc-wrong-stored', { stored: true, both: { crc: 1 } }),
  whileExtracting('invalid_archive--more-than-declared', { ...file('x', SPREAD.subarray(0, 9000)), both: { size: 8999 } }),
  whileExtracting('invalid_archive--more-than-declared-large', { ...file('x', SPREAD), both: { size: 2 * MIB - 1 } }),
  whileExtracting('invalid_archive--less-than-declared', { ...file('x', SPREAD.subarray(0, 9000)), both: { size: 9001 } }),
  whileExtracting('invalid_archive--less-than-declared-large', { ...file('x', SPREAD), both: { size: 2 * MIB + 1 } }),
  whileExtracting('invalid_archive--nothing-declared', { ...file('x', 'y'), both: { size: 0 } }),
  whileExtracting('invalid_archive--packed-data-left-over', { ...file('x', SPREAD.subarray(0, 9000)), packed: Buffer.concat([deflateRawSync(SPREAD.subarray(0, 9000)), JUNK]) }),
  whileExtracting('invalid_archive--packed-data-left-over-large', { ...file('x', SPREAD), packed: Buffer.concat([deflateRawSync(SPREAD), JUNK]) }),
  whileExtracting('invalid_archive--packed-data-cut-short', { ...file('x', SPREAD.subarray(0, 9000)), packed: deflateRawSync(SPREAD.subarray(0, 9000)).subarray(0, -5) }),
  whileExtracting('invalid_archive--packed-data-cut-short-large', { ...file('x', SPREAD), packed: deflateRawSync(SPREAD).subarray(0, -5) }),
  whileExtracting('invalid_archive--no-deflate', { ...file('x', 'abc'), packed: Buffer.from([0x07, 0x07, 0x07]) }),
  whileExtracting('invalid_archive--no-packed-data', { ...file('x', 'abc'), packed: Buffer.alloc(0) }),
]

export const HOSTILE_ZIPS: readonly HostileZip[] = [
  ...names, ...platforms, ...sameNames, ...types, ...symlinks, ...headers, ...structures, ...nothing, ...sizes, ...data,
]
