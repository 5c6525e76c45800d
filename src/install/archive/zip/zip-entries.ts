import { NumberColumn } from '../../../core/columns/number-column.ts'
import { PackedTexts } from '../../../core/columns/packed-texts.ts'

export type ZipMethod = 'stored' | 'deflated'

/** The method and the sizes of an entry. */
export interface ZipPacking {
  readonly method: ZipMethod
  /** The unpacked size in bytes. */
  readonly size: number
  /** The size in the archive in bytes. */
  readonly packedSize: number
}

/** An entry as the central directory lists it. */
export interface ZipEntry extends ZipPacking {
  readonly name: string
  /** The CRC-32 that the unpacked bytes must have, as a signed number. */
  readonly crc: number
  /** The position of the local header. */
  readonly headerOffset: number
}

/** An entry whose local header has been compared with the directory. */
export interface LocatedZipEntry extends ZipEntry {
  /** The position of the packed bytes. */
  readonly dataOffset: number
}

const METHODS: readonly ZipMethod[] = ['stored', 'deflated']

/**
 * The entries of a ZIP, numbered from 0 in the order of its directory. Each becomes an object only while it is used.
 */
export class ZipEntries {
  readonly #names = new PackedTexts()
  readonly #sizes = new NumberColumn('float64')
  readonly #packedSizes = new NumberColumn('float64')
  readonly #methods = new NumberColumn('int32')
  readonly #crcs = new NumberColumn('int32')
  readonly #headerOffsets = new NumberColumn('float64')
  readonly #dataOffsets = new NumberColumn('float64')

  get length(): number {
    return this.#sizes.length
  }

  add({ name, size, packedSize, method, crc, headerOffset }: ZipEntry): void {
    this.#names.add(name)
    this.#sizes.add(size)
    this.#packedSizes.add(packedSize)
    this.#methods.add(METHODS.indexOf(method))
    this.#crcs.add(crc)
    this.#headerOffsets.add(headerOffset)
    this.#dataOffsets.add(Number.NaN)
  }

  /** Records the position of an entry's packed bytes. */
  locate(number: number, dataOffset: number): void {
    this.#dataOffsets.set(number, dataOffset)
  }

  packingAt(number: number): ZipPacking {
    const method = METHODS[this.#methods.at(number)] as ZipMethod
    return { method, size: this.#sizes.at(number), packedSize: this.#packedSizes.at(number) }
  }

  at(number: number): ZipEntry {
    return {
      name: this.#names.at(number),
      size: this.#sizes.at(number),
      packedSize: this.#packedSizes.at(number),
      method: METHODS[this.#methods.at(number)] as ZipMethod,
      crc: this.#crcs.at(number),
      headerOffset: this.#headerOffsets.at(number),
    }
  }

  /** Returns an entry whose packed bytes have been located. */
  locatedAt(number: number): LocatedZipEntry {
    return Object.assign(this.at(number), { dataOffset: this.dataOffsetAt(number) })
  }

  headerOffsetAt(number: number): number {
    return this.#headerOffsets.at(number)
  }

  dataOffsetAt(number: number): number {
    return this.#dataOffsets.at(number)
  }
}
