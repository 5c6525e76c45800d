import { createHash, type Hash, hash } from 'node:crypto'
import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { StringDecoder } from 'node:string_decoder'
import { errnoOf } from '../../core/errors.ts'
import { isBelow } from '../../core/identifiers.ts'
import { comparePaths, inTreeOrder, treeDigest } from '../../core/trust/tree-digest.ts'
import { syncDirectory, syncFile, temporaryName } from '../files/durable.ts'
import type { PartTree } from '../files/extracted-tree.ts'
import { closeQuietlySync } from '../files/open.ts'
import { tryUnlinkSync } from '../files/remove-tree.ts'
import { withListed } from '../files/spelling.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { describeItemSync, isFile, type TreeItem } from '../files/walk.ts'
import { type Layout, treeRecordPath } from '../host/layout.ts'
import type { InstalledVersion } from '../host/rows.ts'

/** Also longer than any line: a path and a symlink's target have at most 4 KiB each, or six times as much if quoted. */
const RECORD_WINDOW_BYTES = 64 * 1024
/** Enough for a tree of a million files. */
const MAX_RECORD_BYTES = 256 * 1024 * 1024

/**
 * Returns the recorded items of a version, in order; undefined if the version has no record. Reads the record while the
 * caller uses the items. The items are verified only once all of them have been read without an error.
 *
 * Throws TreeRecordDamage or the system's error.
 */
export function readTreeRecord(
  layout: Layout,
  { tree_record: record }: TreeIdentity,
): Iterable<RecordedItem> | undefined {
  const fd = openIfPresentSync(layout, record)
  return fd === undefined || record === undefined ? undefined : readItems(fd, record)
}

/**
 * Returns the lines of a version's record in order; undefined if the version has no record. Reads the whole record
 * first and leaves the lines unparsed, so it takes a fifth of the time that `readTreeRecord` takes for all items.
 * Throws as `readTreeRecord` does, before the first line.
 */
export function readRecordLines(layout: Layout, identity: TreeIdentity): Iterable<RecordedLine> | undefined {
  const whole = readWholeRecord(layout, identity)
  return whole && linesIn(whole.text.toString('utf8'))
}

/** Finds a recorded item by its path. */
export type FindRecorded = (path: string) => RecordedItem | undefined

/**
 * Opens a version's record to look up single items, at a tenth of the cost of reading all of them. Returns undefined if
 * the version has no record. Throws as `readTreeRecord` does, before any lookup.
 */
export function openTreeRecord(layout: Layout, identity: TreeIdentity): FindRecorded | undefined {
  const whole = readWholeRecord(layout, identity)
  return whole && findIn(whole)
}

/** The text of a record, and the time when it was written, in nanoseconds. */
interface WholeRecord {
  readonly text: Buffer
  readonly recordedAt: string
}

function findIn({ text, recordedAt }: WholeRecord): FindRecorded {
  return path => {
    const end = text.indexOf(`\t${quoteField(path)}\n`)
    if (end === -1) return undefined
    const start = text.lastIndexOf('\n', end) + 1
    return parseLine(text.toString('utf8', start, text.indexOf('\n', end)), recordedAt)
  }
}

function readWholeRecord(layout: Layout, { tree_record: name }: TreeIdentity): WholeRecord | undefined {
  const fd = openIfPresentSync(layout, name)
  if (fd === undefined) return undefined
  try {
    const stat = fstatSync(fd, { bigint: true })
    if (!stat.isFile()) throw new TreeRecordDamage('it is not a regular file')
    if (stat.size > MAX_RECORD_BYTES) throw new TreeRecordDamage('it is larger than 256 MiB')
    const text = readFileSync(fd)
    if (hash('sha256', text) !== name) throw new TreeRecordDamage('its content does not match the digest in its name')
    return { text, recordedAt: String(stat.mtimeNs) }
  } finally {
    closeQuietlySync(fd)
  }
}

/** Closes the descriptor. */
function* readItems(fd: number, name: string): Generator<RecordedItem, undefined> {
  try {
    const stat = fstatSync(fd, { bigint: true })
    if (!stat.isFile()) throw new TreeRecordDamage('it is not a regular file')
    const found = createHash('sha256')
    const recordedAt = String(stat.mtimeNs)
    let before = ''
    for (const line of linesOf(fd, found)) {
      const item = parseLine(line, recordedAt)
      if (before !== '' && comparePaths(before, item.path) >= 0)
        throw new TreeRecordDamage(`its line for ${item.path} is out of order`)
      before = item.path
      yield item
    }
    if (found.digest('hex') !== name) throw new TreeRecordDamage('its content does not match the digest in its name')
  } finally {
    closeQuietlySync(fd)
  }
}

function* linesOf(fd: number, digest: Hash): Generator<string, undefined> {
  const [window, decoder] = [Buffer.allocUnsafe(RECORD_WINDOW_BYTES), new StringDecoder('utf8')]
  let rest = ''
  for (let count = readSync(fd, window); count > 0; count = readSync(fd, window)) {
    const bytes = window.subarray(0, count)
    digest.update(bytes)
    const text = rest + decoder.write(bytes)
    let start = 0
    for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n', start)) {
      yield text.slice(start, end)
      start = end + 1
    }
    rest = text.slice(start)
    if (rest.length > RECORD_WINDOW_BYTES) throw new TreeRecordDamage('it has a line that this action does not write')
  }
  if (rest !== '') throw new TreeRecordDamage('its last line is truncated')
}

/** Follows no symlink and waits for no pipe. */
function openIfPresentSync(layout: Layout, record: string | undefined): number | undefined {
  if (record === undefined) return undefined
  try {
    return openSync(treeRecordPath(layout, record), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/**
 * Returns the items of an extracted tree in order, with the stamps that `stampOf` returns. Leaves out the keep-paths,
 * which belong to the host.
 */
export function* itemsOf(
  { files, symlinks }: PartTree,
  keepPaths: readonly string[],
  stampOf: StampOf = () => undefined,
): Generator<RecordedItem, undefined> {
  const isKept = isBelow(keepPaths)
  const links = linkItems({ files, symlinks }, stampOf)
  let link = links.next()
  for (const file of files) {
    for (; !link.done && comparePaths(link.value.path, file.path) < 0; link = links.next())
      if (!isKept(link.value.path)) yield link.value
    const { path, sha256 } = file
    if (!isKept(path))
      yield {
        path,
        kind: file.mode.toString(8),
        content: String(file.size),
        sha256,
        stamp: stampOf(file),
        owner: file.owner,
      }
  }
  for (; !link.done; link = links.next()) if (!isKept(link.value.path)) yield link.value
}

function* linkItems({ files, symlinks }: PartTree, stampOf: StampOf): Generator<RecordedItem, undefined> {
  if (symlinks.length === 0) return
  const digests = new Map(files.map(({ path, sha256 }) => [path, sha256]))
  for (const symlink of inTreeOrder(symlinks)) {
    const { path, target, file } = symlink
    yield { path, kind: 'link', content: target, sha256: digests.get(file ?? ''), stamp: stampOf(symlink) }
  }
}

/** Returns the known stamp of an item, or undefined. */
type StampOf = (item: { readonly path: string; readonly stamp?: string }) => string | undefined

/**
 * Returns the items of `itemsOf` with their stamps in the folder of the extracted tree. Reads the unknown stamps from
 * that folder.
 */
export function stagedItems(
  { tree, staged }: { readonly tree: PartTree; readonly staged: string },
  keepPaths: readonly string[],
): Generator<RecordedItem, undefined> {
  const kept = withListed(staged, keepPaths)
  return itemsOf(tree, kept, ({ path, stamp }) => stamp ?? describeItemSync(staged, path)?.stamp)
}

/**
 * Removes the records that no installed or retained version names, and nothing else. If some cannot be removed, throws
 * the first error after trying to remove all of them.
 */
export function pruneTreeRecords({ trees }: Layout, used: readonly TreeIdentity[]): void {
  const names = new Set(used.map(({ tree_record: record }) => `${record}.tree`))
  const stale = readdirSync(trees).filter(name => /^[0-9a-f]{64}\.tree$/.test(name) && !names.has(name))
  const errors: unknown[] = []
  for (const name of stale) {
    try {
      unlinkSync(`${trees}/${name}`)
    } catch (error) {
      errors.push(error)
    }
  }
  if (errors.length > 0) throw errors[0]
}

/**
 * Digest or `-`; mode, `link` or `other`; size or target; stamp (three numbers) or nothing; owner, if it is known; path.
 * See `quoteField`.
 */
const LINE =
  /^([0-9a-f]{64}|-)\t([0-7]{1,4}|link|other)\t([^\t]*)\t((?:[0-9]+\t-?[0-9]+\t(-?[0-9]+))?)\t(?:(us|[0-9]{1,10})\t)?([^\t]+)$/
const LEAVES_TREE = /(?:^|\/)\.{0,2}(?:\/|$)/

/** Returns the line of an item, with its line break. */
function lineOf({ sha256 = '-', kind, content, stamp = '', owner, path }: RecordedItem): string {
  return `${sha256}\t${kind}\t${quoteField(content)}\t${stamp}\t${owner === undefined ? '' : `${owner}\t`}${quoteField(path)}\n`
}

/**
 * Parses a line of a record that was written at `recordedAt`, in nanoseconds. An item that was changed at that time or
 * later gets no stamp, because another change may have followed in the same tick of the file system's clock. A change
 * in the same tick as an earlier stamp goes unnoticed; see `ExtractedFile`. Throws TreeRecordDamage.
 */
function parseLine(line: string, recordedAt: string): RecordedItem {
  const [, sha256, kind, content, stamp, changedAt, owner, quotedPath] = LINE.exec(line) ?? []
  if (kind === undefined || content === undefined || quotedPath === undefined)
    throw new TreeRecordDamage('it has a line that this action does not write')
  const path = unquote(quotedPath)
  if (LEAVES_TREE.test(path)) throw new TreeRecordDamage('it has a path that leaves the tree')
  return {
    path,
    kind,
    content: unquote(content),
    stamp: changedAt !== undefined && isEarlierTime(changedAt, recordedAt) ? stamp : undefined,
    owner,
    sha256: sha256 === '-' ? undefined : sha256,
  }
}

/** Compares two times in nanoseconds without parsing them. No host with a correct clock has a time before 1970. */
function isEarlierTime(time: string, other: string): boolean {
  if (time.startsWith('-') || other.startsWith('-')) return false
  return time.length < other.length || (time.length === other.length && time < other)
}

/**
 * True if both items are of one type and, as files, both executable or both not. A default ACL of a shelf may have given
 * one of them fewer permissions for others.
 */
export function isSameKind(a: TreeItem, b: TreeItem): boolean {
  return a.kind === b.kind || (isFile(a) && isFile(b) && isExecutable(a) === isExecutable(b))
}

function isExecutable({ kind }: TreeItem): boolean {
  return (Number.parseInt(kind, 8) & 0o100) !== 0
}

/** A recorded item, unparsed: its path, and every field that distinguishes its content. */
export interface RecordedLine {
  readonly path: string
  readonly fields: string
}

/** Returns the line that an item would have. */
export function asLine({ sha256 = '-', kind, content, path }: RecordedItem): RecordedLine {
  return { path, fields: `${sha256}\t${kind}\t${quoteField(content)}` }
}

/** Returns the unparsed lines of a record whose digest was verified, in order. */
function* linesIn(text: string): Generator<RecordedLine, undefined> {
  for (let start = 0, end = text.indexOf('\n'); end !== -1; start = end + 1, end = text.indexOf('\n', start)) {
    const path = text.lastIndexOf('\t', end) + 1
    const stamp = text.indexOf('\t', text.indexOf('\t', text.indexOf('\t', start) + 1) + 1)
    yield { path: unquote(text.slice(path, end)), fields: text.slice(start, stamp) }
  }
}

/**
 * Quotes a text as JSON if it looks quoted, or contains a control character, such as those that separate fields and
 * lines. Host files may have any name.
 */
function quoteField(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return /^"|[\u0000-\u001f]/.test(text) ? JSON.stringify(text) : text
}

function unquote(text: string): string {
  if (!text.startsWith('"')) return text
  const value = parseQuoted(text)
  if (typeof value !== 'string') throw new TreeRecordDamage('it has a quoted text that this action does not write')
  return value
}

function parseQuoted(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** An item of a tree, as the tree's record describes it. */
export interface RecordedItem extends TreeItem {
  /** Digest of a file, or of the file that a symlink leads to; otherwise undefined. */
  readonly sha256: string | undefined
  /** See `FoundItem`; undefined if only the content can show whether the item has changed. */
  readonly stamp: string | undefined
}

/** Returns the tree digest of these items: a symlink to a file counts with the bytes of that file. */
export function digestOfItems(items: Iterable<RecordedItem>): string {
  return treeDigest([...items].flatMap(({ path, sha256 }) => (sha256 === undefined ? [] : [{ path, sha256 }])))
}

/**
 * The fields of `installed.json` that identify the files of a version: their tree digest, and the name of their record.
 */
export type TreeIdentity = Pick<InstalledVersion, 'tree_digest' | 'tree_record'>

/** Returns the `TreeIdentity` in a row, without the row's other fields. */
export function identityOf({ tree_digest, tree_record }: TreeIdentity): TreeIdentity {
  return tree_record === undefined ? { tree_digest } : { tree_digest, tree_record }
}

/** The identity of a tree that has just been recorded. */
export interface RecordedTree {
  readonly tree_digest: string
  readonly tree_record: string
}

/** A tree record that is not as this action wrote it; the message says what is wrong. */
export class TreeRecordDamage extends Error {
  override readonly name = 'TreeRecordDamage'
}

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
    if (lines.length >= RECORD_WINDOW_BYTES) flush()
    if (slice.isOver()) await slice.giveBack()
  }
  flush()
  return { tree_digest: digest.digest('hex'), tree_record: record.digest('hex') }
}
