/** A file that an extraction creates. */
export interface PlannedFile<Entry> {
  /** Relative, with `/` between components, flattened; like every path of a plan. */
  readonly path: string
  readonly mode: 0o644 | 0o755
  readonly entry: Entry
  /** The file's number in the order of the tree digest. */
  readonly place: number
}

/** The source of a plan's files, in the order of the tree digest. */
interface PlannedSource<Entry> {
  readonly length: number
  at(place: number): PlannedFile<Entry>
  entryAt(place: number): Entry
}

/**
 * The files of a plan, or some of them. Each becomes an object only while it is used: an archive may have many, and its
 * listing already contains the facts about them.
 */
export class PlannedFiles<Entry> implements Iterable<PlannedFile<Entry>> {
  readonly #source: PlannedSource<Entry>
  readonly #places: Uint32Array<ArrayBuffer>

  constructor(source: PlannedSource<Entry>, places = Uint32Array.from({ length: source.length }, (_, place) => place)) {
    this.#source = source
    this.#places = places
  }

  get length(): number {
    return this.#places.length
  }

  /** Returns the files that pass the test. */
  filter(test: (file: PlannedFile<Entry>) => boolean): PlannedFiles<Entry> {
    return this.#of(this.#places.filter(place => test(this.#source.at(place))))
  }

  /** Returns the same files, the smallest number first. */
  sortedBy(number: (entry: Entry) => number): PlannedFiles<Entry> {
    const numberAt = (place: number): number => number(this.#source.entryAt(place))
    return this.#of(this.#places.toSorted((a, b) => numberAt(a) - numberAt(b)))
  }

  *entries(): Generator<Entry, undefined> {
    for (const place of this.#places) yield this.#source.entryAt(place)
  }

  *[Symbol.iterator](): Generator<PlannedFile<Entry>, undefined> {
    for (const place of this.#places) yield this.#source.at(place)
  }

  #of(places: Uint32Array<ArrayBuffer>): PlannedFiles<Entry> {
    return new PlannedFiles(this.#source, places)
  }
}
