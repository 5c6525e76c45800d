/** Returns all paths of the lists, in their order and without duplicates. */
export function uniteKeepPaths(...lists: readonly (readonly string[] | undefined)[]): string[] {
  return [...new Set(lists.flatMap(list => list ?? []))]
}
