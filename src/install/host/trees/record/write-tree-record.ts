import { createHash } from 'node:crypto'
import { closeSync, openSync, renameSync, writeFileSync } from 'node:fs'
import { syncDirectory, syncFile } from '../../../files/durable-files.ts'
import { temporaryName } from '../../../files/temporary-name.ts'
import { TimeSlice } from '../../../files/time-slice.ts'
import { tryUnlinkSync } from '../../../files/trees/remove-tree.ts'
import { type Layout, treeRecordPath } from '../../layout.ts'
import { lineOf } from './record-line.ts'
import type { RecordedItem } from './recorded-item.ts'
import type { RecordedTree } from './tree-identity.ts'

const WINDOW_BYTES = 64 * 1024

/**
 * Records a tree whose items come in order; the record is durable on return. The name of the record is the SHA-256 of
 * its text. The text contains the stamps of the files, so every installed tree has a record of its own. The record
 * stays valid when the tree is moved. Works in slices.
 */
export async function writeTreeRecord(
  layout: Layout,
  items: Iterable<RecordedItem>,
  signal?: AbortSignal,
): Promise<RecordedTree> {
  const temporary = temporaryName(`${layout.trees}/record`)
  try {
    const fd = openSync(temporary, 'wx', 0o600)
    let identity: RecordedTree
    try {
      identity = await writeItems(fd, items, signal)
      await syncFile(fd)
    } finally {
      closeSync(fd)
    }
    renameSync(temporary, treeRecordPath(layout, identity.tree_record))
    await syncDirectory(layout.trees)
    return identity
  } catch (error) {
    tryUnlinkSync(temporary)
    throw error
  }
}

async function writeItems(
  fd: number,
  items: Iterable<RecordedItem>,
  signal: AbortSignal | undefined,
): Promise<RecordedTree> {
  const [record, digest, slice] = [createHash('sha256'), createHash('sha256'), new TimeSlice(signal)]
  let [lines, digested, separator] = ['', '', '']
  const flush = (): void => {
    writeFileSync(fd, lines)
    record.update(lines)
    digest.update(digested)
    ;[lines, digested] = ['', '']
  }
  for (const item of items) {
    lines += lineOf(item)
    if (item.sha256 !== undefined) {
      digested += `${separator}${item.path}:${item.sha256}`
      separator = '\n'
    }
    if (lines.length >= WINDOW_BYTES) flush()
    if (slice.isOver()) await slice.giveBack()
  }
  flush()
  return { tree_digest: digest.digest('hex'), tree_record: record.digest('hex') }
}
