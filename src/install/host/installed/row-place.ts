import { type PartName, type Place, placeName, type Shelf, usualDirectory } from '../layout.ts'

/** What names the part of a row. */
interface NamedPart {
  readonly kind: 'plugin' | 'service'
  readonly id: string
}

/** Which directory of plugins a row is in; absent for the usual one. */
interface InDirectory {
  readonly directory?: string
}

/** Which part a row is about. */
export function partOf({ kind, id }: NamedPart): PartName {
  return { shelf: shelfOf(kind), id }
}

/** Where a row's plugin or service is installed. */
export function placeOf(row: NamedPart & InDirectory): Place {
  const part = partOf(row)
  return { ...part, directory: row.directory ?? usualDirectory(part.shelf) }
}

/** What a row says of its place. */
export function directoryIn({ shelf, directory }: Place): InDirectory {
  return directory === usualDirectory(shelf) ? {} : { directory }
}

export function shelfOf(kind: 'plugin' | 'service'): Shelf {
  return kind === 'plugin' ? 'plugins' : 'extensions'
}

/** The name of the place that a row is about. */
export function nameOf(row: NamedPart): string {
  return placeName(partOf(row))
}
