/** The fields of a header. Every field that is left out has its true value. */
export interface TarFields {
  rawName?: Buffer
  rawSize?: Buffer
  rawMode?: Buffer
  rawChecksum?: Buffer
  magic?: string
  prefix?: string
}

export interface TarItem {
  name: string
  type?: string
  data?: Buffer | string
  /** Declared in place of the data's length. */
  size?: number
  mode?: number
  target?: string
  fields?: TarFields
}

export const BLOCK_BYTES = 512
export const TAR_END = Buffer.alloc(2 * BLOCK_BYTES)
export const USTAR = 'ustar\x0000'
export const GNU = 'ustar  \0'
export const V7 = '\0'.repeat(8)

/** A tar of these items, deterministic, and as well formed as the items are. */
export function buildTar(items: readonly TarItem[], end: Buffer = TAR_END): Buffer {
  return Buffer.concat([...items.map(buildMember), end])
}

export function buildMember(item: TarItem): Buffer {
  const data = Buffer.from(item.data ?? '')
  return Buffer.concat([buildHeader(item, item.size ?? data.length), data, padding(data.length)])
}

export function file(name: string, data: Buffer | string = '', more: Partial<TarItem> = {}): TarItem {
  return { name, data, ...more }
}

export function directory(name: string, more: Partial<TarItem> = {}): TarItem {
  return { name, type: '5', mode: 0o755, ...more }
}

export function symlink(name: string, target: string, more: Partial<TarItem> = {}): TarItem {
  return { name, type: '2', target, mode: 0o777, ...more }
}

/** A PAX extended header about the next item. */
export function pax(words: Record<string, string | Buffer>, type = 'x'): TarItem {
  return { name: 'PaxHeader', type, data: Buffer.concat(Object.entries(words).map(([key, value]) => paxRecord(key, value))) }
}

/** GNU's form of a long name (`L`) or link name (`K`) of the next item. */
export function gnuLong(type: 'L' | 'K', name: string | Buffer): TarItem {
  return { name: '././@LongLink', type, data: Buffer.concat([Buffer.from(name), Buffer.alloc(1)]), fields: { magic: GNU } }
}

export function paxRecord(key: string, value: string | Buffer): Buffer {
  const rest = Buffer.concat([Buffer.from(` ${key}=`), Buffer.from(value), Buffer.from('\n')])
  let length = rest.length + 1
  while (rest.length + String(length).length !== length) length = rest.length + String(length).length
  return Buffer.concat([Buffer.from(String(length)), rest])
}

function buildHeader({ name, type = '0', mode = 0o644, target = '', fields = {} }: TarItem, size: number): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES)
  const rawName = fields.rawName ?? Buffer.from(name)
  rawName.copy(header, 0, 0, 100)
  place(header, 100, fields.rawMode ?? octal(mode, 8))
  place(header, 108, octal(0, 8))
  place(header, 116, octal(0, 8))
  place(header, 124, fields.rawSize ?? octal(size, 12))
  place(header, 136, octal(0, 12))
  header.write(type, 156, 'latin1')
  header.write(target, 157, 100, 'utf8')
  header.write(fields.magic ?? USTAR, 257, 'latin1')
  header.write(fields.prefix ?? '', 345, 155, 'utf8')
  place(header, 148, fields.rawChecksum ?? octal(checksum(header), 8))
  return header
}

function place(header: Buffer, at: number, field: Buffer): void {
  field.copy(header, at)
}

function octal(value: number, length: number): Buffer {
  return Buffer.from(`${value.toString(8).padStart(length - 1, '0')}\0`)
}

function checksum(header: Buffer): number {
  return header.reduce((sum, byte) => sum + byte, 8 * 0x20)
}

function padding(length: number): Buffer {
  return Buffer.alloc((BLOCK_BYTES - (length % BLOCK_BYTES)) % BLOCK_BYTES)
}
