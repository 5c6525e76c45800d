import type { TimeSlice } from './time-slice.ts'

/** Makes something of each item, giving the event loop back whenever a slice is over. Throws the signal's reason once it is aborted. */
export async function eachInSlices<Item>(
  items: readonly Item[],
  slice: TimeSlice,
  make: (item: Item) => void,
): Promise<void> {
  for (const item of items) {
    make(item)
    if (slice.isOver()) await slice.giveBack()
  }
}

/** The same pieces, giving the event loop back before one whenever a slice is over. Throws the signal's reason once it is aborted. */
export async function* inSlices(pieces: AsyncIterable<Buffer>, slice: TimeSlice): AsyncGenerator<Buffer> {
  for await (const piece of pieces) {
    if (slice.isOver()) await slice.giveBack()
    yield piece
  }
}
