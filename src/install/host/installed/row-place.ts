import { type PartName, type Place, placeName, type Shelf, usualDirectory } from '../layout.ts'

/** The fields that name the part of a row. */
interface NamedPart {
  readonly kind: 'plugin' | 'service'
  readonly id: string
}

/** The directory of plugins that contains a row's part; absent for the usual directory. */
interface InDirectory {
  readonly directory?: string
}

/** Returns the part that a row is about. */
export function partOf({ kind, id }: NamedPart): PartName {
  return { shelf: shelfOf(kind), id }
}

/** Returns the place of a row's plugin or service. */
export function placeOf(row: NamedPart & InDirectory): Place {
  const part = partOf(row)
  return { ...part, directory: row.directory ?? usualDirectory(part.shelf) }
}

/** Returns the field in which a row records a directory of plugins, or no field for the usual directory. */
export function directoryIn({ shelf, directory }: Place): InDirectory {
  return directory === usualDirectory(shelf) ? {} : { directory }
}

export function shelfOf(kind: 'plugin' | 'service'): Shelf {
  return kind === 'plugin' ? 'plugins' : 'extensions'
}

/** Returns the name of the part that a row is about. */
export function nameOf(row: NamedPart): string {
  return placeName(partOf(row))
}
