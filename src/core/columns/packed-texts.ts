/** The number of texts in one block. */
const BLOCK_TEXTS = 1024
/** The initial room for each text, enough for most names. */
const BYTES_PER_TEXT = 32
/** The maximum number of UTF-8 bytes that one UTF-16 unit can need. */
const BYTES_PER_UNIT = 3

/** Texts, one after another, and the position at which each ends. */
interface Block {
  bytes: Buffer
  readonly ends: Uint32Array
}

/**
 * Many texts, by number, outside the JavaScript heap. On the heap, the garbage collector would copy each string twice
 * before leaving it alone. It would then double the room for new objects. A lone surrogate becomes U+FFFD, as in every
 * path that is passed to the system.
 */
export class PackedTexts {
  readonly #blocks: Block[] = []
  #length = 0

  get length(): number {
    return this.#length
  }

  add(text: string): void {
    const at = this.#length % BLOCK_TEXTS
    if (at === 0) this.#blocks.push(newBlock())
    const block = this.#blocks.at(-1) as Block
    const start = block.ends[at - 1] ?? 0
    reserve(block, start + text.length * BYTES_PER_UNIT)
    block.ends[at] = start + block.bytes.write(text, start)
    this.#length += 1
  }

  /** Returns the text with this number, which must be below `length`. */
  at(index: number): string {
    const { bytes, ends } = this.#blocks[Math.floor(index / BLOCK_TEXTS)] as Block
    const at = index % BLOCK_TEXTS
    return bytes.toString('utf8', ends[at - 1] ?? 0, ends[at])
  }
}

function newBlock(): Block {
  return { bytes: Buffer.from(new ArrayBuffer(BLOCK_TEXTS * BYTES_PER_TEXT)), ends: new Uint32Array(BLOCK_TEXTS) }
}

/** Makes sure that a block has room for this many bytes. If the block must grow, frees the old memory at once. */
function reserve(block: Block, bytes: number): void {
  const { buffer, length } = block.bytes
  if (bytes > length) block.bytes = Buffer.from((buffer as ArrayBuffer).transfer(Math.max(bytes, length * 1.5)))
}
