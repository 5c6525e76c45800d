import { cleanForeignText } from '../foreign-text.ts'

/**
 * Returns the first candidate that is `word` or a near miss of it, or undefined. A near miss has one missing, added or
 * changed character or two swapped neighbors, or differs only in capitalization, "-", "_" and spaces. The cost is
 * linear in the length of the arguments.
 */
export function nearMiss(word: string, candidates: Iterable<string>): string | undefined {
  for (const candidate of candidates) {
    if (bareLetters(candidate) === bareLetters(word) || isOneEditApart(candidate, word)) return candidate
  }
  return undefined
}

/** Returns `; did you mean "x"?` with the near miss, cleaned as foreign text; an empty text if there is none. */
export function didYouMean(word: string, candidates: Iterable<string>): string {
  const candidate = nearMiss(word, candidates)
  return candidate === undefined ? '' : `; did you mean "${cleanForeignText(candidate, 64)}"?`
}

function bareLetters(word: string): string {
  return word.toLowerCase().replace(/[-_ ]/g, '')
}

function isOneEditApart(a: string, b: string): boolean {
  if (Math.abs(a.length - b.length) > 1) return false
  const shorter = Math.min(a.length, b.length)
  let start = 0
  while (start < shorter && a[start] === b[start]) start++
  let end = 0
  while (end < shorter - start && a.at(-1 - end) === b.at(-1 - end)) end++
  const left = a.slice(start, a.length - end)
  const right = b.slice(start, b.length - end)
  return Math.max(left.length, right.length) <= 1 || (left.length === 2 && left === [...right].toReversed().join(''))
}
