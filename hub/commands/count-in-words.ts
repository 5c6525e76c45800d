/** A count with its noun: `1 artifact`, `2 artifacts`. */
export function countInWords(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`
}
