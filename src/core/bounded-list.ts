/** A list as JSON, and how many of its items are not in it. */
export interface BoundedList {
  readonly json: string
  readonly omitted: number
}

/** As many of the items, from the first on, as fit into so many characters of JSON. */
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
