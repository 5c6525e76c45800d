import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { createRandom } from '../../../bench/source-tree.ts'
import { type DiskEvent, readDiskLog } from './disk-log.ts'

const SECTOR_BYTES = 512
/** The superblock of an ext4 is in these first bytes, that of a btrfs begins at the offset below. */
const SUPERBLOCK_ENDS = 4096
const BTRFS_SUPERBLOCK = 65_536

/** Marks that the recorder sets: the power may fail between these two. */
export const BEGINNING = 1
export const END = 2

/** A disk and all later writes to it, from which the disk after a power cut can be rebuilt. */
export interface Recording {
  /** The folder of `base.img` and `disk.log`. */
  readonly folder: string
  readonly base: Buffer
  readonly events: readonly DiskEvent[]
}

export function readRecording(folder: string): Recording {
  return { folder, base: readFileSync(join(folder, 'base.img')), events: readDiskLog(join(folder, 'disk.log')) }
}

/**
 * Returns the index of the event before which the power fails. The seed chooses an event between the two marks or,
 * sometimes, the second mark. Later events are chosen more often, because a deployment begins by reading.
 */
export function cutAt({ events }: Recording, seed: number): number {
  const [beginning, end] = [BEGINNING, END].map(number => markIn(events, number)) as [number, number]
  const even = createRandom(seed)()
  const moment = seed % 3 === 0 ? even : Math.sqrt(even)
  return Math.min(end, beginning + 1 + Math.floor(moment * 1.05 * (end - beginning)))
}

/** The index of a mark; -1 if there is none. */
export function markIn(events: readonly DiskEvent[], number: number): number {
  return events.findIndex(event => event.kind === 'mark' && event.number === number)
}

/**
 * Rebuilds the disk after a power cut before the event `at`. Everything before the last flush is on the disk. The later
 * writes are applied in random order, and the seed decides whether each is complete, missing, or present in some of its
 * sectors. With every fourth seed, all of them are missing.
 */
export function rebuildDisk({ base, events }: Recording, at: number, seed: number): Buffer {
  const disk = Buffer.from(base)
  const before = events.slice(0, at)
  const flushed = before.findLastIndex(event => event.kind === 'flush')
  for (const event of before.slice(0, flushed + 1)) if (event.kind === 'write') event.bytes.copy(disk, event.offset)
  if (seed % 4 === 0) return disk
  const random = createRandom(seed + 1_000_000)
  const unflushed = before.slice(flushed + 1).flatMap(event => (event.kind === 'write' ? [event] : []))
  for (const { offset, bytes } of shuffled(unflushed, random)) {
    const fate = random()
    // No file system survives a torn superblock, whatever runs on the disk.
    const isTorn = fate >= 2 / 3 && offset >= SUPERBLOCK_ENDS && offset !== BTRFS_SUPERBLOCK
    for (let done = 0; fate >= 1 / 3 && done < bytes.length; done += SECTOR_BYTES)
      if (!isTorn || random() < 0.5) bytes.copy(disk, offset + done, done, done + SECTOR_BYTES)
  }
  return disk
}

function shuffled<T>(items: readonly T[], random: () => number): T[] {
  return items
    .map(item => ({ item, key: random() }))
    .sort((a, b) => a.key - b.key)
    .map(({ item }) => item)
}

/** usage: node test/e2e/harness/power-cut.ts FOLDER SEED IMAGE */
if (import.meta.main) {
  const [folder, seed, image] = process.argv.slice(2)
  if (folder === undefined || image === undefined) throw new Error('usage: power-cut.ts FOLDER SEED IMAGE')
  const recording = readRecording(folder)
  const at = cutAt(recording, Number(seed))
  writeFileSync(image, rebuildDisk(recording, at, Number(seed)))
  console.log(
    `The power fails before event ${at} of ${recording.events.length}. To see the disk, run: mount -o loop ${image} /mnt`,
  )
}
