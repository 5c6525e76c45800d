import { closeSync, readFileSync, writeSync } from 'node:fs'

/** An event on a disk. A log contains the events in order. */
export type DiskEvent =
  | { readonly kind: 'write'; readonly offset: number; readonly bytes: Buffer }
  /** All earlier writes are durable. */
  | { readonly kind: 'flush' }
  /** An event outside the disk, at this moment. */
  | { readonly kind: 'mark'; readonly number: number }

/** Each event has a header with its kind, an offset or number, and the length of the bytes that follow. */
const HEADER_BYTES = 16
const KINDS = ['write', 'flush', 'mark'] as const

/** Appends a disk's events to a file. */
export class DiskLogWriter {
  readonly #fd: number
  readonly #header = Buffer.alloc(HEADER_BYTES)

  constructor(fd: number) {
    this.#fd = fd
  }

  append(event: DiskEvent): void {
    const bytes = event.kind === 'write' ? event.bytes : Buffer.alloc(0)
    const position = event.kind === 'write' ? event.offset : event.kind === 'mark' ? event.number : 0
    this.#header.writeUInt32LE(KINDS.indexOf(event.kind), 0)
    this.#header.writeUInt32LE(bytes.length, 4)
    this.#header.writeBigUInt64LE(BigInt(position), 8)
    writeSync(this.#fd, this.#header)
    if (bytes.length > 0) writeSync(this.#fd, bytes)
  }

  close(): void {
    closeSync(this.#fd)
  }
}

export function readDiskLog(path: string): DiskEvent[] {
  const log = readFileSync(path)
  const events: DiskEvent[] = []
  for (let at = 0; at < log.length; ) {
    const [kind, length] = [KINDS[log.readUInt32LE(at)], log.readUInt32LE(at + 4)]
    const position = Number(log.readBigUInt64LE(at + 8))
    const bytes = log.subarray(at + HEADER_BYTES, at + HEADER_BYTES + length)
    if (kind === 'write') events.push({ kind, offset: position, bytes })
    else if (kind === 'mark') events.push({ kind, number: position })
    else events.push({ kind: 'flush' })
    at += HEADER_BYTES + length
  }
  return events
}
