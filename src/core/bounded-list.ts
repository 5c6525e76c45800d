/** A list as JSON, and the number of its items that were left out. */
export interface BoundedList {
  readonly json: string
  readonly omitted: number
}

/** Takes as many of the items, from the first on, as fit into this many characters of JSON. */
export function fitList(items: readonly unknown[], maxChars: number): BoundedList {
  const texts: string[] = []
  let room = maxChars - '[]'.length
  for (const item of items) {
    const text = JSON.stringify(item)
    room -= text.length + ','.length
    if (room < 0) break
    texts.push(text)
  }
  return { json: `[${texts.join(',')}]`, omitted: items.length - texts.length }
}
