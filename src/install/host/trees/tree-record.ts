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
import { errnoOf } from '../../../core/errors.ts'
import { comparePaths, inTreeOrder, treeDigest } from '../../../core/trust/tree-digest.ts'
import { syncDirectory, syncFile, temporaryName } from '../../files/durable-files.ts'
import type { ExtractedTree } from '../../files/extracted-tree.ts'
import { tryUnlinkSync } from '../../files/remove-tree.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import { describeItemSync, type TreeItem } from '../../files/tree-scan.ts'
import type { InstalledVersion } from '../installed/rows.ts'
import { earlierRecordPath, type Layout, treeRecordPath } from '../layout.ts'
import { readEarlierRecord } from './earlier-tree-record.ts'
import { TreeRecordDamage } from './tree-record-damage.ts'

/** A file or symlink of a tree, as it is recorded. */
export interface RecordedItem extends TreeItem {
  /** Of the bytes of a file, or of the file that a symlink leads to; undefined for a symlink that leads to none. */
  readonly sha256: string | undefined
  /** See `FoundItem`; undefined where only the content can show whether an item has changed. */
  readonly stamp: string | undefined
}

/** What `installed.json` says of the files of a version: their tree digest, and the name of their record. */
export type TreeIdentity = Pick<InstalledVersion, 'tree_digest' | 'tree_record'>

/** The identity in a row, without the rest of it. */
export function identityOf({ tree_digest, tree_record }: TreeIdentity): TreeIdentity {
  return tree_record === undefined ? { tree_digest } : { tree_digest, tree_record }
}

/** The identity of a tree that has just been recorded. */
export interface RecordedTree {
  readonly tree_digest: string
  readonly tree_record: string
}

type StagedTree = Pick<ExtractedTree, 'files' | 'symlinks'>

const WINDOW_BYTES = 256 * 1024
/** Digest, mode or `link`, size or target, stamp (three numbers), path; see `quote`. */
const LINE = /^([0-9a-f]{64}|-)\t([0-7]{1,4}|link|other)\t([^\t]*)\t([0-9]+\t-?[0-9]+\t-?([0-9]+)|)\t([^\t]+)$/
const LEAVES_TREE = /(?:^|\/)\.{0,2}(?:\/|$)/

/** The items of an extracted tree in order, without the keep-paths, which belong to the host, and with these stamps. */
export function* itemsOf(
  tree: StagedTree,
  keepPaths: readonly string[],
  stampOf: StampOf = () => undefined,
): Generator<RecordedItem, undefined> {
  const isKept = isBelow(keepPaths)
  const files = inTreeOrder(tree.files)
  const symlinks = inTreeOrder(tree.symlinks)
  const digests = new Map(symlinks.length === 0 ? [] : files.map(({ path, sha256 }) => [path, sha256]))
  let next = 0
  for (const symlink of [...symlinks, undefined]) {
    for (let file = files[next]; file !== undefined; file = files[++next]) {
      if (symlink !== undefined && comparePaths(symlink.path, file.path) < 0) break
      const { path, sha256 } = file
      if (!isKept(path))
        yield { path, kind: file.mode.toString(8), content: String(file.size), sha256, stamp: stampOf(file) }
    }
    if (symlink === undefined || isKept(symlink.path)) continue
    const { path, target, file } = symlink
    yield { path, kind: 'link', content: target, sha256: digests.get(file ?? ''), stamp: stampOf(symlink) }
  }
}

/** What an item's stamp is known to be. */
type StampOf = (item: { readonly path: string; readonly stamp?: string }) => string | undefined

/** The same items with their stamps in the folder to which the tree was extracted, each read anew where none is known. */
export function stagedItems(
  { tree, staged }: { readonly tree: StagedTree; readonly staged: string },
  keepPaths: readonly string[],
): Generator<RecordedItem, undefined> {
  return itemsOf(tree, keepPaths, ({ path, stamp }) => stamp ?? describeItemSync(staged, path)?.stamp)
}

/** Whether a path is one of these, or below one. */
export function isBelow(paths: readonly string[]): (path: string) => boolean {
  return path => paths.some(kept => path === kept || path.startsWith(`${kept}/`))
}

/** The tree digest of these items: a symlink to a file counts with the bytes of that file. */
export function digestOfItems(items: Iterable<RecordedItem>): string {
  return treeDigest([...items].flatMap(({ path, sha256 }) => (sha256 === undefined ? [] : [{ path, sha256 }])))
}

/**
 * Records a tree whose items come in order: durable when it returns, under the SHA-256 of its own text. So every
 * installed tree has its own record, which stays valid when the tree is moved. Works in slices.
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

function lineOf({ sha256 = '-', kind, content, stamp = '', path }: RecordedItem): string {
  return `${sha256}\t${kind}\t${quote(content)}\t${stamp}\t${quote(path)}\n`
}

/** As it is, or as JSON where it contains what divides fields and lines: a host's own file may have any name. */
function quote(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  return /^"|[\u0000-\u001f]/.test(text) ? JSON.stringify(text) : text
}

function unquote(text: string): string {
  if (!text.startsWith('"')) return text
  const value: unknown = JSON.parse(text)
  if (typeof value !== 'string') throw new TreeRecordDamage('it quotes something else than a text')
  return value
}

/**
 * The recorded items of a version, in order; undefined where it has no record. Reads the record while it is used: only
 * once all items are read without an error, they are certainly those that were recorded.
 * Throws TreeRecordDamage, the system's error, or DeploymentError `host_not_writable` for what is no record.
 */
export function readTreeRecord(
  layout: Layout,
  { tree_digest: digest, tree_record: record }: TreeIdentity,
): Iterable<RecordedItem> | undefined {
  if (record !== undefined) {
    const fd = openIfPresentSync(treeRecordPath(layout, record))
    return fd === undefined ? undefined : readItems(fd, record)
  }
  return digest === null ? undefined : readEarlierRecord(earlierRecordPath(layout, digest), digest)
}

/** A recorded item, unparsed: its path, and everything that makes it another one. */
export interface RecordedLine {
  readonly path: string
  readonly what: string
}

/** The line that an item would have. */
export function asLine({ sha256 = '-', kind, content, path }: RecordedItem): RecordedLine {
  return { path, what: `${sha256}\t${kind}\t${quote(content)}` }
}

/**
 * The lines of a version's record in order, for which it is read whole: a fifth of the time that all items take.
 * Undefined where it has no record. Throws as `readTreeRecord` does, before the first line.
 */
export function readRecordLines(layout: Layout, identity: TreeIdentity): Iterable<RecordedLine> | undefined {
  const { tree_record: record } = identity
  if (record === undefined) {
    const items = readTreeRecord(layout, identity)
    return items && [...items].map(asLine)
  }
  const fd = openIfPresentSync(treeRecordPath(layout, record))
  return fd === undefined ? undefined : linesIn(readWholeRecord(fd, record).text.toString('utf8'))
}

function* linesIn(text: string): Generator<RecordedLine, undefined> {
  for (let start = 0, end = text.indexOf('\n'); end !== -1; start = end + 1, end = text.indexOf('\n', start)) {
    const path = text.lastIndexOf('\t', end) + 1
    const stamp = text.indexOf('\t', text.indexOf('\t', text.indexOf('\t', start) + 1) + 1)
    yield { path: unquote(text.slice(path, end)), what: text.slice(start, stamp) }
  }
}

/** Finds a recorded item by its path. */
export type FindRecorded = (path: string) => RecordedItem | undefined

/**
 * Looks up single items of a version's record, which costs a tenth of reading all of them; undefined where it has no
 * record. Throws as `readTreeRecord` does, before anything is looked up.
 */
export function openTreeRecord(layout: Layout, identity: TreeIdentity): FindRecorded | undefined {
  const { tree_record: record } = identity
  if (record === undefined) {
    const items = readTreeRecord(layout, identity)
    const found = items && new Map([...items].map(item => [item.path, item]))
    return found && (path => found.get(path))
  }
  const fd = openIfPresentSync(treeRecordPath(layout, record))
  return fd === undefined ? undefined : findIn(readWholeRecord(fd, record))
}

function findIn({ text, recordedAt }: { readonly text: Buffer; readonly recordedAt: bigint }): FindRecorded {
  return path => {
    const end = text.indexOf(`\t${quote(path)}\n`)
    if (end === -1) return undefined
    const start = text.lastIndexOf('\n', end) + 1
    return parseLine(text.toString('utf8', start, text.indexOf('\n', end)), recordedAt)
  }
}

/** Closes the descriptor. */
function readWholeRecord(fd: number, name: string): { text: Buffer; recordedAt: bigint } {
  try {
    const stat = fstatSync(fd, { bigint: true })
    if (!stat.isFile()) throw new TreeRecordDamage('it is no regular file')
    const text = readFileSync(fd)
    if (hash('sha256', text) !== name) throw new TreeRecordDamage('its content does not have the digest of its name')
    return { text, recordedAt: stat.mtimeNs }
  } finally {
    closeSync(fd)
  }
}

/** Where the record of a version is. */
export function recordPath(layout: Layout, { tree_digest, tree_record }: TreeIdentity): string {
  return tree_record === undefined ? earlierRecordPath(layout, tree_digest ?? '') : treeRecordPath(layout, tree_record)
}

/** Closes the descriptor. */
function* readItems(fd: number, name: string): Generator<RecordedItem, undefined> {
  try {
    const stat = fstatSync(fd, { bigint: true })
    if (!stat.isFile()) throw new TreeRecordDamage('it is no regular file')
    const found = createHash('sha256')
    let before = ''
    for (const line of linesOf(fd, found)) {
      const item = parseLine(line, stat.mtimeNs)
      if (before !== '' && comparePaths(before, item.path) >= 0)
        throw new TreeRecordDamage(`${item.path} is not in its place`)
      before = item.path
      yield item
    }
    if (found.digest('hex') !== name) throw new TreeRecordDamage('its content does not have the digest of its name')
  } finally {
    closeSync(fd)
  }
}

/**
 * What was changed no earlier than the record was written might have been changed again in the same tick of the file
 * system's clock.
 */
function parseLine(line: string, recordedAt: bigint): RecordedItem {
  const [, sha256 = '', kind = '', content = '', stamp = '', changedAt = '', path = ''] = LINE.exec(line) ?? []
  if (path === '') throw new TreeRecordDamage('it has a line that this action does not write')
  const isCertain = stamp !== '' && BigInt(changedAt) < recordedAt
  const item = { path: unquote(path), kind, content: unquote(content), stamp: isCertain ? stamp : undefined }
  if (LEAVES_TREE.test(item.path)) throw new TreeRecordDamage('it has a path that leaves the tree')
  return { ...item, sha256: sha256 === '-' ? undefined : sha256 }
}

function* linesOf(fd: number, digest: Hash): Generator<string, undefined> {
  const [window, decoder] = [Buffer.allocUnsafe(WINDOW_BYTES), new StringDecoder('utf8')]
  let rest = ''
  for (let count = readSync(fd, window); count > 0; count = readSync(fd, window)) {
    const bytes = window.subarray(0, count)
    digest.update(bytes)
    const lines = (rest + decoder.write(bytes)).split('\n')
    rest = lines.pop() ?? ''
    yield* lines
  }
  if (rest !== '') throw new TreeRecordDamage('its last line is cut')
}

/** Follows no symlink and waits for no pipe. */
function openIfPresentSync(path: string): number | undefined {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    throw error
  }
}

/** Removes the records that no installed or retained version names, and nothing else. */
export function pruneTreeRecords({ trees }: Layout, used: readonly TreeIdentity[]): void {
  const names = new Set(
    used.flatMap(({ tree_digest: digest, tree_record: record }) => {
      if (record !== undefined) return [`${record}.tree`]
      return digest === null ? [] : [`${digest}.json`]
    }),
  )
  const stale = readdirSync(trees).filter(name => /^[0-9a-f]{64}\.(?:json|tree)$/.test(name) && !names.has(name))
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
