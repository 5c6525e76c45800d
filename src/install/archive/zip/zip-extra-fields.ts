import { crc32 } from 'node:zlib'
import { invalidEntry, unsafeEntry } from '../../../core/archive/archive-entry.ts'

const ZIP64_ID = 0x0001
const UNICODE_PATH_ID = 0x7075
const UNICODE_PATH_VERSION = 1
/** The fields of ASi Unix and libarchive, from which some tools take an entry's type and a symlink's target. */
const TYPE_IDS: ReadonlySet<number> = new Set([0x756e, 0x6c78])
/** The bytes before the path in a Unicode path field: the version, and the CRC of the name that the path replaces. */
const UNICODE_PATH_PREFIX_BYTES = 5
const FIELD_HEADER_BYTES = 4
const SATURATED_32 = 0xffffffff

/** The position of the extra fields of a header, and the name of the entry for messages. */
interface ExtraFieldsAt {
  readonly start: number
  readonly end: number
  readonly rawName: Buffer
}

/** The extra fields of a header that change what its entry is. */
export class ZipExtraFields {
  readonly #rawName: Buffer
  readonly #zip64: Buffer | undefined
  readonly #unicodePath: Buffer | undefined

  /**
   * Throws ArchiveError `invalid_archive` if the data of a field is cut short, or if a zip64 or Unicode path field
   * occurs twice. Throws `unsafe_archive` for a field that gives the entry another type in some tools.
   */
  constructor(header: Buffer, { start, end: extraEnd, rawName }: ExtraFieldsAt) {
    this.#rawName = rawName
    for (let at = start; at + FIELD_HEADER_BYTES <= extraEnd; ) {
      const id = header.readUInt16LE(at)
      const end = at + FIELD_HEADER_BYTES + header.readUInt16LE(at + 2)
      if (end > extraEnd) throw invalidEntry(this.#showName(), 'has an extra field that is cut short')
      // Creates a view only of a field that matters: nearly every entry has other fields.
      const value = (): Buffer => header.subarray(at + FIELD_HEADER_BYTES, end)
      if (TYPE_IDS.has(id)) throw unsafeEntry(this.#showName(), 'has an extra field that could make it a symlink')
      if (id === ZIP64_ID) this.#zip64 = this.#onlyOnce(this.#zip64, value())
      if (id === UNICODE_PATH_ID) this.#unicodePath = this.#onlyOnce(this.#unicodePath, value())
      at = end
    }
  }

  get hasZip64(): boolean {
    return this.#zip64 !== undefined
  }

  /** True if a Unicode path says that the header's name is UTF-8. */
  get hasUnicodePath(): boolean {
    return this.#unicodePath !== undefined
  }

  /**
   * Throws ArchiveError `unsafe_archive` if a Unicode path differs from the header's name, because some tools would use
   * the Unicode path. Throws `invalid_archive` if the field is cut short, has another version or was made for another
   * name.
   */
  verifyUnicodePath(rawName: Uint8Array): void {
    const path = this.#unicodePath
    if (path === undefined) return
    const isWhole = path.length >= UNICODE_PATH_PREFIX_BYTES && path[0] === UNICODE_PATH_VERSION
    if (!isWhole || path.readUInt32LE(1) !== crc32(rawName)) {
      throw invalidEntry(
        this.#showName(),
        'has a Unicode path field that is cut short, has an unknown version or was made for a different name',
      )
    }
    if (!path.subarray(UNICODE_PATH_PREFIX_BYTES).equals(rawName)) {
      throw unsafeEntry(this.#showName(), 'has a second, different name in its Unicode path field')
    }
  }

  /**
   * Returns the true values of 32-bit fields. The zip64 field contains a 64-bit value for each saturated 32-bit field.
   * Pass `fields` in the order of these values. Throws ArchiveError `invalid_archive` if a value is missing or too
   * large for a JavaScript integer.
   */
  resolveZip64(fields: readonly number[]): readonly number[] {
    if (!fields.includes(SATURATED_32)) return fields
    let at = 0
    return fields.map(field => {
      if (field !== SATURATED_32) return field
      const value = this.#zip64At(at)
      at += 8
      return value
    })
  }

  #zip64At(at: number): number {
    if (this.#zip64 === undefined || at + 8 > this.#zip64.length)
      throw invalidEntry(this.#showName(), 'lacks the zip64 value of a size or position')
    const value = this.#zip64.readBigUInt64LE(at)
    if (value > BigInt(Number.MAX_SAFE_INTEGER))
      throw invalidEntry(this.#showName(), 'has a size or position that is impossibly large')
    return Number(value)
  }

  #showName(): string {
    return this.#rawName.toString('utf8')
  }

  #onlyOnce(before: Buffer | undefined, value: Buffer): Buffer {
    if (before !== undefined) throw invalidEntry(this.#showName(), 'has the same extra field twice')
    return value
  }
}
