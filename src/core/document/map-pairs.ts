import { isScalar, type Pair, type YAMLMap } from 'yaml'

/** Without an index, finding the positions of thousands of mistakes in one map would take quadratic time. */
const indexes = new WeakMap<YAMLMap, ReadonlyMap<PropertyKey, Pair>>()

/** Returns a map's first pair with this key, or undefined. */
export function pairAt(map: YAMLMap, key: PropertyKey | undefined): Pair | undefined {
  if (key === undefined) return undefined
  const index = indexes.get(map) ?? indexOf(map)
  indexes.set(map, index)
  return index.get(key)
}

/** Returns a key as text; a key that is not a scalar becomes the empty text. */
export function keyText(key: unknown): string {
  return isScalar(key) ? String(key.value) : ''
}

function indexOf(map: YAMLMap): ReadonlyMap<PropertyKey, Pair> {
  // Of several pairs with the same key, a Map keeps the last. In the reversed list, that is the first pair of the YAML
  // map.
  return new Map(map.items.map((pair): [PropertyKey, Pair] => [keyText(pair.key), pair]).reverse())
}
