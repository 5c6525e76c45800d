import { crc32, deflateRawSync } from 'node:zlib'
import { buildZip, directory, DOS, FILE, file, PROGRAM, symlink, unicodePath, type ZipItem, type ZipShape, zip64Extra } from './zip-builder.ts'

export interface AcceptedZip {
  readonly name: string
  readonly bytes: Buffer
  readonly flattened?: string
  readonly files: Readonly<Record<string, string | Buffer>>
  readonly programs?: readonly string[]
  readonly symlinks?: Readonly<Record<string, string>>
  readonly directories?: readonly string[]
}

const LARGE = Buffer.from(Array.from({ length: 3 * 1024 * 1024 }, (_, index) => (index * index * 31 + (index >> 7)) & 0xff))
const NESTED = buildZip([file('inner')])
const MANY = Array.from({ length: 300 }, (_, index) => file(`many/${index}`, `content ${index}`))

function accepted(name: string, items: ZipItem[], expected: Partial<AcceptedZip> = {}, shape: ZipShape = {}): AcceptedZip {
  return { name, bytes: buildZip(items, shape), files: contentsOf(items), ...expected }
}

function contentsOf(items: readonly ZipItem[]): Record<string, string | Buffer> {
  const files = items.filter(item => !item.name.endsWith('/') && (item.mode ?? FILE) >>> 12 === FILE >>> 12)
  return Object.fromEntries(files.map(item => [item.name, item.data ?? '']))
}

const A = file('a', 'first')
const B = file('b', 'second')

export const ACCEPTED_ZIPS: readonly AcceptedZip[] = [
  accepted('one file', [A]),
  accepted('an empty stored file', [{ ...file('empty', ''), stored: true }]),
  accepted('an empty deflated file', [file('empty', '')]),
  accepted('empty directories', [A, directory('d/'), directory('d/e/')], { directories: ['d', 'd/e'] }),
  accepted('a deflated directory', [A, { name: 'd/', data: '', mode: 0o040755 }], { directories: ['d'] }),
  accepted('a directory by DOS attributes', [A, { ...directory('d/'), mode: 0, dosAttributes: 0x10 }], { directories: ['d'] }),
  accepted('a directory by its name only', [A, { ...directory('d/'), mode: 0 }], { directories: ['d'] }),
  accepted('a directory listed after its files', [A, file('d/x'), directory('d/')], { directories: ['d'] }),
  accepted('a directory in a different order from the data', [A, file('d/x'), symlink('l', 'a'), B], { symlinks: { l: 'a' }, directories: ['d'] }, {
    reversedDirectory: true,
  }),
  accepted('implied directories', [A, file('d/e/x')], { directories: ['d', 'd/e'] }),
  accepted('a single top-level directory', [directory('top/'), file('top/a', 'x'), file('top/d/b', 'y')], {
    flattened: 'top',
    files: { a: 'x', 'd/b': 'y' },
    directories: ['d'],
  }),
  accepted('an implied single top-level directory', [file('top/a', 'x')], { flattened: 'top', files: { a: 'x' } }),
  accepted('only one level flattened', [file('top/only/a', 'x')], { flattened: 'top', files: { 'only/a': 'x' }, directories: ['only'] }),
  accepted('a top-level directory and file', [file('top/a'), B], { directories: ['top'] }),
  accepted('two top-level directories', [file('one/a'), file('two/a')], { directories: ['one', 'two'] }),
  accepted('the executable bit', [{ ...A, mode: PROGRAM }, B], { files: { a: 'first', b: 'second' }, programs: ['a'] }),
  accepted('set-uid, set-gid and sticky bits, dropped', [{ ...A, mode: 0o107755 }], { files: { a: 'first' }, programs: ['a'] }),
  accepted('world-writable modes, dropped', [{ ...A, mode: 0o100666 }]),
  accepted('no Unix attributes', [{ ...A, mode: 0 }], { files: { a: 'first' } }),
  accepted('no x bit for the owner', [{ ...A, mode: 0o100011 }]),
  accepted('a symlink to a file', [A, symlink('l', 'a')], { symlinks: { l: 'a' } }),
  accepted('a symlink before its target', [symlink('l', 'a'), A], { symlinks: { l: 'a' } }),
  accepted('a symlink to a directory', [file('d/x'), A, symlink('l', 'd/')], { symlinks: { l: 'd/' }, directories: ['d'] }),
  accepted('a symlink that goes up inside', [A, symlink('d/l', '../a')], { symlinks: { 'd/l': '../a' }, directories: ['d'] }),
  accepted('a symlink inside a flattened tree', [file('top/a', 'x'), symlink('top/d/l', '.././a')], {
    flattened: 'top',
    files: { a: 'x' },
    symlinks: { 'd/l': '.././a' },
    directories: ['d'],
  }),
  accepted('a chain of symlinks, as libraries have', [file('libx.so.1.2', 'code'), symlink('libx.so.1', 'libx.so.1.2'), symlink('libx.so', 'libx.so.1')], {
    symlinks: { 'libx.so.1': 'libx.so.1.2', 'libx.so': 'libx.so.1' },
  }),
  accepted('a symlink through another to a directory', [A, file('d/x'), symlink('l', 'd'), symlink('m', 'l/x')], { symlinks: { l: 'd', m: 'l/x' }, directories: ['d'] }),
  accepted('a dangling symlink that stays inside', [A, symlink('l', 'nothing'), symlink('d/m', '../data/db')], { symlinks: { l: 'nothing', 'd/m': '../data/db' }, directories: ['d'] }),
  accepted('nothing but zeros', [file('zeros', Buffer.alloc(4 * 1024 * 1024)), A]),
  accepted('a deflated symlink', [A, { ...symlink('l', 'a'), stored: false }], { symlinks: { l: 'a' } }),
  accepted('UTF-8 names', [file('grün'), file('日本/文'), file('😀')], { directories: ['日本'] }),
  accepted('a byte order mark in a name', [file('\ufeffa'), A]),
  accepted('names that only Windows keeps', [file('aux'), file('ab:c'), file('x.'), file('q?')]),
  accepted('names that differ in case', [file('readme'), file('README')]),
  accepted('names with dots', [file('...'), file('..a'), file('a..'), file('.hidden')]),
  accepted('64 levels', [A, file(Array.from({ length: 64 }, () => 'd').join('/'))], {
    directories: Array.from({ length: 63 }, (_, index) => Array.from({ length: index + 1 }, () => 'd').join('/')),
  }),
  accepted('a name of 255 bytes', [file('n'.repeat(255))]),
  accepted('an equal Unicode path', [{ ...A, both: { extra: unicodePath(Buffer.from('a'), 'a') } }]),
  accepted('a UTF-8 name without its flag that a Unicode path vouches for', [{ ...file('grün'), both: { flags: 0, extra: unicodePath(Buffer.from('grün'), 'grün') } }]),
  accepted('an archive comment', [A], {}, { comment: Buffer.from('0123456789abcdef0123456789abcdef01234567') }),
  accepted('the longest archive comment', [A], {}, { comment: Buffer.alloc(0xffff, 'c') }),
  accepted('a nested stored ZIP', [{ ...file('nested.zip', NESTED), stored: true }]),
  accepted('a nested stored ZIP64', [{ ...file('nested.zip', buildZip([A], saturated())), stored: true }]),
  accepted('data descriptors', [{ ...A, descriptor: true }, { ...B, descriptor: true, stored: true }]),
  accepted('a data descriptor and true sizes', [{ ...A, descriptor: true, local: sizesOf('first') }, B]),
  accepted('a data descriptor and saturated sizes', [{ ...A, descriptor: true, local: { size: 0xffffffff, packedSize: 0xffffffff } }, B]),
  accepted('a data descriptor and empty zip64 sizes', [{ ...A, descriptor: true, local: { size: 0xffffffff, packedSize: 0xffffffff, extra: zip64Extra(0, 0) } }, B]),
  accepted('a data descriptor without its signature', [{ ...A, both: { flags: 8 }, behind: descriptor('first', 32) }, B]),
  accepted('a data descriptor of 64 bits', [{ ...A, both: { flags: 8 }, behind: Buffer.concat([Buffer.from('PK\x07\x08', 'latin1'), descriptor('first', 64)]) }, B]),
  accepted('a symlink by Unix bits that DOS wrote, as the file that unzip makes of it', [A, { ...symlink('l', 'a'), system: DOS }], { files: { a: 'first', l: 'a' } }),
  accepted('x bits that DOS wrote, dropped', [{ ...A, mode: PROGRAM, system: DOS }]),
  accepted('a directory by its name, with the bits of a file that DOS wrote', [A, { ...directory('d/'), mode: FILE, system: DOS }], { directories: ['d'] }),
  accepted('modes by OS X', [{ ...A, mode: PROGRAM, system: 19 }], { files: { a: 'first' }, programs: ['a'] }),
  accepted('stored data with a data descriptor, larger than one read', [{ ...file('large', LARGE), stored: true, descriptor: true }, A]),
  accepted('a nested ZIP with data descriptors, whose size comes first', [streamedNested(), A]),
  accepted('zip64 with saturated fields', [A, B], {}, saturated()),
  accepted('zip64 with one saturated field', [A, B], {}, { zip64: {}, end: { count: 0xffff } }),
  accepted('zip64 sizes of an entry', [zip64Item()]),
  accepted('zip64 sizes only in the local header', [{ ...A, local: { size: 0xffffffff, packedSize: 0xffffffff, extra: zip64Extra(5, deflateRawSync(Buffer.from('first')).length) } }]),
  accepted('a few bytes after the last extra field', [{ ...A, both: { extra: Buffer.alloc(3) } }]),
  accepted('a large deflated file', [{ ...file('large', LARGE), mode: PROGRAM }, A], { files: { large: LARGE, a: 'first' }, programs: ['large'] }),
  accepted('a large stored file', [{ ...file('large', LARGE), stored: true }, A]),
  accepted('a small file in many packed bytes', [{ ...A, packed: Buffer.concat([emptyBlocks(300_000), deflateRawSync(Buffer.from('first'))]) }]),
  accepted('many files', MANY, { flattened: 'many', files: Object.fromEntries(MANY.map(item => [item.name.slice(5), item.data ?? ''])) }),
]

function sizesOf(data: string): { size: number; packedSize: number; crc: number } {
  return { size: data.length, packedSize: deflateRawSync(Buffer.from(data)).length, crc: crc32(data) }
}

/** A data descriptor without its signature. */
function descriptor(data: string, bits: 32 | 64): Buffer {
  const { size, packedSize, crc } = sizesOf(data)
  const bytes = Buffer.alloc(4 + bits / 4)
  bytes.writeUInt32LE(crc, 0)
  bytes.writeUIntLE(packedSize, 4, 4)
  bytes.writeUIntLE(size, 4 + bits / 8, 4)
  return bytes
}

function streamedNested(): ZipItem {
  const data = buildZip([{ ...A, descriptor: true }])
  return { ...file('nested.zip', data), stored: true, descriptor: true, local: { size: data.length, packedSize: data.length } }
}

function saturated(): ZipShape {
  return { zip64: {}, end: { count: 0xffff, size: 0xffffffff, offset: 0xffffffff } }
}

function zip64Item(): ZipItem {
  const size = 5
  const extra = zip64Extra(size, deflateRawSync(Buffer.from('first')).length)
  return { ...A, both: { size: 0xffffffff, packedSize: 0xffffffff, extra } }
}

/** Empty stored blocks of a deflate stream, none of them final. */
function emptyBlocks(count: number): Buffer {
  return Buffer.alloc(count * 5, Buffer.from([0, 0, 0, 0xff, 0xff]))
}
