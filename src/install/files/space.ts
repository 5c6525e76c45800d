import { type StatsFs, statfsSync } from 'node:fs'
import { byteShortage } from '../../core/byte-shortage.ts'
import { DeploymentError } from '../../core/errors.ts'

/** Enough for the journal, the reports and our other records of a deployment. */
export const OWN_INODES = 16

/** File systems with larger blocks (on a network, or that compress) do not use a whole one for each small file. */
const MAX_BLOCK_BYTES = 4096

/** What a directory's file system must have left. */
export interface NeededSpace {
  /** Of each file, in bytes. */
  readonly sizes: Iterable<number>
  /** Files, directories and symlinks. */
  readonly inodes: number
}

/** How large a tree may become whose entries are not known yet. */
export interface MostSpace {
  /** Of all files. */
  readonly bytes: number
  /** Files, directories and symlinks. */
  readonly entries: number
}

type FreeSpace = Pick<StatsFs, 'bavail' | 'bsize' | 'files' | 'ffree'>

/**
 * Throws DeploymentError `disk_full`, with what is needed, what is there and what to do, unless the file system of the
 * directory has room for all of it: whole blocks, and inodes where it has a fixed number of them. Blocks that are
 * reserved for root count as used.
 */
export function requireSpace(
  path: string,
  { sizes, inodes }: NeededSpace,
  readFree: (path: string) => FreeSpace = statfsSync,
): void {
  const { bavail, bsize, files, ffree } = readFree(path)
  const bytes = bytesOnDisk(sizes, Math.min(bsize, MAX_BLOCK_BYTES))
  if (bavail * bsize < bytes) throw outOfSpace(path, bavail * bsize, bytes)
  // A file system that makes inodes as they are needed reports none.
  if (files > 0 && ffree < inodes) throw outOfInodes(path, ffree, inodes)
}

/** Whether there is room for so many entries with so many bytes in all, however these are divided between them. */
export function hasSpaceForAny(
  path: string,
  { bytes, entries }: MostSpace,
  readFree: (path: string) => FreeSpace = statfsSync,
): boolean {
  const { bavail, bsize, files, ffree } = readFree(path)
  const hasBytes = bavail * bsize >= bytes + entries * MAX_BLOCK_BYTES
  return hasBytes && (files === 0 || ffree >= entries + OWN_INODES)
}

function bytesOnDisk(sizes: Iterable<number>, blockBytes: number): number {
  let blocks = 0
  for (const size of sizes) blocks += Math.ceil(size / blockBytes)
  return blocks * blockBytes
}

function outOfSpace(path: string, freeBytes: number, neededBytes: number): DeploymentError {
  const { free, needed } = byteShortage(freeBytes, neededBytes)
  return new DeploymentError(
    'disk_full',
    `This deployment needs ${needed} in ${path}, but its file system has ${free} free. Nothing was changed: free some space there (df shows it) and run again.`,
  )
}

function outOfInodes(path: string, free: number, needed: number): DeploymentError {
  return new DeploymentError(
    'disk_full',
    `This deployment needs ${needed} inodes in ${path}, one for each file and directory, but its file system has ${free} left. Nothing was changed: remove some files there (df -i shows it) and run again.`,
  )
}
