import { countInWords } from '../../core/quantities.ts'
import { placePath, usualDirectory } from '../host/layout.ts'
import type { DriftEntry } from './facts.ts'

const MAX_NAMES = 20
/** Names the state of a place that contains no directory. */
export const INSTEAD_WORDS: Record<NonNullable<DriftEntry['instead']>, string> = {
  nothing: 'missing',
  symlink: 'a symlink instead of a directory',
  file: 'a file instead of a directory',
  other: 'not a directory',
}

/** Returns the install path of an entry's part, relative to the project root. */
export function pathOfEntry({ shelf, id, directory = usualDirectory(shelf) }: DriftEntry): string {
  return placePath({ shelf, id, directory })
}

/**
 * Lists up to 20 of the files that differ, each with its part and its difference. `more` counts the rest in words, and
 * is empty if all are listed.
 */
export function listDrift(entries: readonly DriftEntry[]): { names: string[]; more: string } {
  const all = entries.flatMap(entry => {
    const inWords = (how: 'changed' | 'removed' | 'added'): string[] =>
      entry[how].map(path => `${pathOfEntry(entry)}/${path} (${how})`)
    if (entry.instead !== undefined) return [`${pathOfEntry(entry)} (${INSTEAD_WORDS[entry.instead]})`]
    return [...inWords('changed'), ...inWords('removed'), ...inWords('added')]
  })
  const omitted = entries.reduce((sum, entry) => sum + (entry.omitted ?? 0), 0)
  const names = all.slice(0, MAX_NAMES)
  const count = all.length - names.length + omitted
  const least = entries.some(({ uncounted }) => uncounted) ? 'at least ' : ''
  return { names, more: count > 0 ? ` and ${least}${countInWords(count)} more` : '' }
}
