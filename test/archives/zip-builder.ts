import { crc32, deflateRawSync } from 'node:zlib'

/** The fields of a header. Every field that is left out has its true value. */
export interface HeaderFields {
  rawName?: Buffer
  flags?: number
  method?: number
  crc?: number
  packedSize?: number
  size?: number
  extra?: Buffer
  signature?: number
}

export interface ZipItem {
  name: string
  data?: Buffer | string
  /** Unix mode with its type bits. */
  mode?: number
  /** Attributes below the Unix mode. */
  dosAttributes?: number
  stored?: boolean
  /** Bytes in the archive in place of the packed `data`. */
  packed?: Buffer
  /** Adds a data descriptor after the data, and puts zeros into the local header. */
  descriptor?: boolean
  /** Bytes between the entry's data, or its descriptor, and the next entry. */
  behind?: Buffer
  /** The number of the system that made the entry; default Unix. */
  system?: number
  /** False values in both headers. */
  both?: HeaderFields
  local?: HeaderFields
  central?: HeaderFields & { disk?: number; offset?: number; comment?: Buffer }
}

export interface ZipShape {
  prefix?: Buffer
  /** Bytes before the first entry; unlike `prefix`, counted in every position. */
  beforeEntries?: Buffer
  /** Bytes between the last entry and the directory. */
  beforeDirectory?: Buffer
  /** Bytes after the last header, counted in the directory's size. */
  inDirectory?: Buffer
  /** Bytes between the directory and its end record. */
  beforeEnd?: Buffer
  /** Lists the last item first. */
  reversedDirectory?: true
  comment?: Buffer
  trailing?: Buffer
  end?: { disk?: number; directoryDisk?: number; countHere?: number; count?: number; size?: number; offset?: number }
  zip64?: {
    locatorOffset?: number
    locatorDisk?: number
    disks?: number
    recordSize?: number
    disk?: number
    directoryDisk?: number
    count?: number
    countHere?: number
    size?: number
    offset?: number
    extensible?: Buffer
    afterRecord?: Buffer
  }
}

export const FILE = 0o100644
export const PROGRAM = 0o100755
export const DIRECTORY = 0o040755
export const SYMLINK = 0o120777
export const UTF8_NAME = 0x0800
export const DOS = 0
const UNIX = 3
const DESCRIPTOR = 0x0008

/** A ZIP of these items, deterministic, and as well formed as the items and the shape are. */
export function buildZip(items: readonly ZipItem[], shape: ZipShape = {}): Buffer {
  const prefix = shape.prefix ?? Buffer.alloc(0)
  const locals: Buffer[] = []
  const headers: Buffer[] = []
  const before = shape.beforeEntries ?? Buffer.alloc(0)
  let offset = before.length
  for (const item of items) {
    const local = buildLocal(item)
    headers.push(buildCentral(item, offset))
    locals.push(local)
    offset += local.length
  }
  const body = Buffer.concat([before, ...locals, shape.beforeDirectory ?? Buffer.alloc(0)])
  if (shape.reversedDirectory) headers.reverse()
  const directory = Buffer.concat([...headers, shape.inDirectory ?? Buffer.alloc(0)])
  const facts = { count: items.length, size: directory.length, offset: body.length }
  const end = buildEnd(facts, shape, body.length + directory.length + (shape.beforeEnd?.length ?? 0))
  return Buffer.concat([prefix, body, directory, shape.beforeEnd ?? Buffer.alloc(0), end, shape.trailing ?? Buffer.alloc(0)])
}

export function file(name: string, data: Buffer | string = name): ZipItem {
  return { name, data, mode: FILE }
}

export function directory(name: string): ZipItem {
  return { name, data: '', mode: DIRECTORY, stored: true }
}

export function symlink(name: string, target: string): ZipItem {
  return { name, data: target, mode: SYMLINK, stored: true }
}

/** Builds one extra field: its id, its length and its value. */
export function extraField(id: number, value: Buffer): Buffer {
  const head = Buffer.alloc(4)
  head.writeUInt16LE(id, 0)
  head.writeUInt16LE(value.length, 2)
  return Buffer.concat([head, value])
}

export function unicodePath(rawName: Buffer, path: string, version = 1): Buffer {
  const head = Buffer.alloc(5)
  head.writeUInt8(version, 0)
  head.writeUInt32LE(crc32(rawName), 1)
  return extraField(0x7075, Buffer.concat([head, Buffer.from(path)]))
}

export function zip64Extra(...values: number[]): Buffer {
  const bytes = Buffer.alloc(values.length * 8)
  for (const [index, value] of values.entries()) bytes.writeBigUInt64LE(BigInt(value), index * 8)
  return extraField(0x0001, bytes)
}

function factsOf(item: ZipItem): Required<Omit<HeaderFields, 'signature'>> & { packed: Buffer } {
  const data = Buffer.from(item.data ?? '')
  const rawName = Buffer.from(item.name)
  const packed = item.packed ?? (item.stored ? data : deflateRawSync(data))
  const isAscii = rawName.every(byte => byte < 128)
  return {
    rawName,
    flags: (isAscii ? 0 : UTF8_NAME) | (item.descriptor ? DESCRIPTOR : 0),
    method: item.stored ? 0 : 8,
    crc: crc32(data),
    packedSize: packed.length,
    size: data.length,
    extra: Buffer.alloc(0),
    packed,
  }
}

function buildLocal(item: ZipItem): Buffer {
  const facts = factsOf(item)
  const hidden = item.descriptor ? { crc: 0, packedSize: 0, size: 0 } : {}
  const fields = { ...facts, ...hidden, ...item.both, ...item.local }
  const head = Buffer.alloc(30)
  head.writeUInt32LE(fields.signature ?? 0x04034b50, 0)
  head.writeUInt16LE(20, 4)
  writeShared(head, 6, fields)
  const descriptor = item.descriptor ? buildDescriptor(facts) : Buffer.alloc(0)
  return Buffer.concat([head, fields.rawName, fields.extra, facts.packed, descriptor, item.behind ?? Buffer.alloc(0)])
}

function buildDescriptor(facts: { crc: number; packedSize: number; size: number }): Buffer {
  const bytes = Buffer.alloc(16)
  bytes.writeUInt32LE(0x08074b50, 0)
  bytes.writeUInt32LE(facts.crc, 4)
  bytes.writeUInt32LE(facts.packedSize, 8)
  bytes.writeUInt32LE(facts.size, 12)
  return bytes
}

function buildCentral(item: ZipItem, offset: number): Buffer {
  const fields = { ...factsOf(item), ...item.both, ...item.central }
  const comment = item.central?.comment ?? Buffer.alloc(0)
  const head = Buffer.alloc(46)
  head.writeUInt32LE(fields.signature ?? 0x02014b50, 0)
  head.writeUInt8(20, 4)
  head.writeUInt8(item.system ?? UNIX, 5)
  head.writeUInt16LE(20, 6)
  writeShared(head, 8, fields)
  head.writeUInt16LE(comment.length, 32)
  head.writeUInt16LE(item.central?.disk ?? 0, 34)
  head.writeUInt32LE((((item.mode ?? 0) << 16) | (item.dosAttributes ?? 0)) >>> 0, 38)
  head.writeUInt32LE(item.central?.offset ?? offset, 42)
  return Buffer.concat([head, fields.rawName, fields.extra, comment])
}

function writeShared(head: Buffer, at: number, fields: Required<Omit<HeaderFields, 'signature'>>): void {
  head.writeUInt16LE(fields.flags, at)
  head.writeUInt16LE(fields.method, at + 2)
  head.writeUInt32LE(0x58210000, at + 4)
  head.writeUInt32LE(fields.crc, at + 8)
  head.writeUInt32LE(fields.packedSize, at + 12)
  head.writeUInt32LE(fields.size, at + 16)
  head.writeUInt16LE(fields.rawName.length, at + 20)
  head.writeUInt16LE(fields.extra.length, at + 22)
}

interface DirectoryFacts {
  count: number
  size: number
  offset: number
}

function buildEnd(facts: DirectoryFacts, shape: ZipShape, position: number): Buffer {
  const comment = shape.comment ?? Buffer.alloc(0)
  const fields = { disk: 0, directoryDisk: 0, countHere: shape.end?.count ?? facts.count, ...facts, ...shape.end }
  const end = Buffer.alloc(22)
  end.writeUInt32LE(0x06054b50, 0)
  end.writeUInt16LE(fields.disk, 4)
  end.writeUInt16LE(fields.directoryDisk, 6)
  end.writeUInt16LE(fields.countHere, 8)
  end.writeUInt16LE(fields.count, 10)
  end.writeUInt32LE(fields.size, 12)
  end.writeUInt32LE(fields.offset, 16)
  end.writeUInt16LE(comment.length, 20)
  const zip64 = shape.zip64 === undefined ? Buffer.alloc(0) : buildZip64(facts, shape.zip64, position)
  return Buffer.concat([zip64, end, comment])
}

function buildZip64(facts: DirectoryFacts, lies: NonNullable<ZipShape['zip64']>, position: number): Buffer {
  const fields = { countHere: lies.count ?? facts.count, ...facts, ...lies }
  const extensible = lies.extensible ?? Buffer.alloc(0)
  const record = Buffer.alloc(56)
  record.writeUInt32LE(0x06064b50, 0)
  record.writeBigUInt64LE(BigInt(lies.recordSize ?? 44 + extensible.length), 4)
  record.writeUInt16LE(45, 12)
  record.writeUInt16LE(45, 14)
  record.writeUInt32LE(lies.disk ?? 0, 16)
  record.writeUInt32LE(lies.directoryDisk ?? 0, 20)
  record.writeBigUInt64LE(BigInt(fields.countHere), 24)
  record.writeBigUInt64LE(BigInt(fields.count), 32)
  record.writeBigUInt64LE(BigInt(fields.size), 40)
  record.writeBigUInt64LE(BigInt(fields.offset), 48)
  const locator = Buffer.alloc(20)
  locator.writeUInt32LE(0x07064b50, 0)
  locator.writeUInt32LE(lies.locatorDisk ?? 0, 4)
  locator.writeBigUInt64LE(BigInt(lies.locatorOffset ?? position), 8)
  locator.writeUInt32LE(lies.disks ?? 1, 16)
  return Buffer.concat([record, extensible, lies.afterRecord ?? Buffer.alloc(0), locator])
}
