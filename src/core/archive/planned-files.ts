/** A file that an extraction creates. */
export interface PlannedFile {
  /**
   * Like all paths of a plan: relative, with `/` between components, and without a top-level directory that is left
   * out.
   */
  readonly path: string
  readonly mode: 0o644 | 0o755
  /** Bytes. */
  readonly size: number
  /** The number of the entry that lists the file. */
  readonly entry: number
  /** The file's number in the order of the tree digest. */
  readonly place: number
}

/** The source of a plan's files, in the order of the tree digest. */
interface PlannedSource {
  readonly length: number
  at(place: number): PlannedFile
  entryAt(place: number): number
  sizeAt(place: number): number
}

/**
 * The files of a plan, or some of them. A file is an object only while it is used, because an archive may have many
 * files.
 */
export class PlannedFiles implements Iterable<PlannedFile> {
  readonly #source: PlannedSource
  readonly #places: Uint32Array<ArrayBuffer>

  constructor(source: PlannedSource, places = Uint32Array.from({ length: source.length }, (_, place) => place)) {
    this.#source = source
    this.#places = places
  }

  get length(): number {
    return this.#places.length
  }

  /** Returns the files that pass the test. */
  filter(test: (file: PlannedFile) => boolean): PlannedFiles {
    return this.#of(this.#places.filter(place => test(this.#source.at(place))))
  }

  /** Returns the files whose entries pass the test. */
  filterByEntry(test: (entry: number) => boolean): PlannedFiles {
    return this.#of(this.#places.filter(place => test(this.#source.entryAt(place))))
  }

  /** Returns the same files, ordered by the numbers that `numberOf` returns for their entries, smallest first. */
  sortedBy(numberOf: (entry: number) => number): PlannedFiles {
    const numberAt = (place: number): number => numberOf(this.#source.entryAt(place))
    return this.#of(this.#places.toSorted((a, b) => numberAt(a) - numberAt(b)))
  }

  /** Returns the files from position `start` up to, but not including, position `end`. */
  slice(start: number, end: number): PlannedFiles {
    return this.#of(this.#places.subarray(start, end))
  }

  /** Yields the number of each file's entry. */
  *entries(): Generator<number, undefined> {
    for (const place of this.#places) yield this.#source.entryAt(place)
  }

  /** Yields the size of each file in bytes. */
  *sizes(): Generator<number, undefined> {
    for (const place of this.#places) yield this.#source.sizeAt(place)
  }

  *[Symbol.iterator](): Generator<PlannedFile, undefined> {
    for (const place of this.#places) yield this.#source.at(place)
  }

  #of(places: Uint32Array<ArrayBuffer>): PlannedFiles {
    return new PlannedFiles(this.#source, places)
  }
}
