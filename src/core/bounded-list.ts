/** A list as JSON, and the number of its items that were left out. */
export interface BoundedList {
  readonly json: string
  readonly omitted: number
}

/** Builds a list of the first items, as many as fit into `maxChars` characters of JSON. */
export function fitList(items: readonly unknown[], maxChars: number): BoundedList {
  const texts: string[] = []
  let room = maxChars - '['.length
  for (const item of items) {
    const text = JSON.stringify(item)
    // A comma or the final bracket follows each item.
    room -= text.length + ','.length
    if (room < 0) break
    texts.push(text)
  }
  return { json: `[${texts.join(',')}]`, omitted: items.length - texts.length }
}
