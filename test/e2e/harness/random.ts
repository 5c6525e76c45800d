import { hash } from 'node:crypto'

/** A sequence of random choices. Equal seeds give equal sequences. */
export interface Random {
  /** A whole number from 0 to less than the limit. */
  below(limit: number): number
  pick<Item>(items: readonly [Item, ...Item[]] | readonly Item[]): Item
}

/** Returns a Mulberry32 generator. */
export function randomFrom(seed: string): Random {
  let state = Number.parseInt(hash('sha256', seed).slice(0, 8), 16)
  const below = (limit: number): number => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit)
  }
  return {
    below,
    pick(items) {
      const item = items[below(items.length)]
      if (item === undefined) throw new Error('The list to pick an item from is empty.')
      return item
    },
  }
}

/** The number of times that each outcome was seen: `failed 3, success 12`. */
export function countOutcomes(outcomes: readonly string[]): string {
  const counts = Map.groupBy(outcomes.toSorted(), outcome => outcome)
  return [...counts].map(([outcome, { length }]) => `${outcome} ${length}`).join(', ')
}
