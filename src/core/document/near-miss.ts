import { cleanForeignText } from '../foreign-text.ts'

/**
 * Returns the first candidate that differs from `word` by one missing, added, changed or swapped character, or only by
 * capitals, "-", "_" and spaces; undefined if there is none. Linear in the length of its arguments.
 */
export function nearMiss(word: string, candidates: Iterable<string>): string | undefined {
  for (const candidate of candidates) {
    if (bareLetters(candidate) === bareLetters(word) || isOneEditApart(candidate, word)) return candidate
  }
  return undefined
}

/** Returns `; did you mean "x"?` for a near miss, which may be foreign text; otherwise an empty text. */
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
