import { PackedTexts } from '../../../core/columns/packed-texts.ts'
import type { ExtractedFile } from './extracted-tree.ts'

/**
 * A fixed number of extracted files, in the order of their places. Each place is set once, in any order. A file is an
 * object only while it is used.
 */
export class FileList implements Iterable<ExtractedFile> {
  readonly length: number
  readonly #texts = new PackedTexts()
  readonly #rows: Uint32Array
  readonly #sizes: Float64Array
  readonly #modes: Uint16Array

  constructor(length: number) {
    this.length = length
    this.#rows = new Uint32Array(length)
    this.#sizes = new Float64Array(length)
    this.#modes = new Uint16Array(length)
  }

  set(place: number, { path, size, mode, sha256, stamp = '' }: ExtractedFile): void {
    this.#rows[place] = this.#texts.length
    this.#sizes[place] = size
    this.#modes[place] = mode
    for (const text of [path, sha256, stamp]) this.#texts.add(text)
  }

  *[Symbol.iterator](): Generator<ExtractedFile, undefined> {
    for (let place = 0; place < this.length; place++) yield this.#at(place)
  }

  #at(place: number): ExtractedFile {
    const row = this.#rows[place] as number
    const stamp = this.#texts.at(row + 2)
    return {
      path: this.#texts.at(row),
      size: this.#sizes[place] as number,
      mode: this.#modes[place] as ExtractedFile['mode'],
      sha256: this.#texts.at(row + 1),
      ...(stamp !== '' && { stamp }),
    }
  }
}
