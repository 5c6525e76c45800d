import type { RecordedItem } from './recorded-item.ts'
import { TreeRecordDamage } from './tree-record-damage.ts'

/** Digest or `-`; mode, `link` or `other`; size or target; stamp (three numbers) or nothing; path. See `quote`. */
const LINE = /^([0-9a-f]{64}|-)\t([0-7]{1,4}|link|other)\t([^\t]*)\t([0-9]+\t-?[0-9]+\t-?([0-9]+)|)\t([^\t]+)$/
/** The line of a file from a record of an earlier version of the action: its digest, `file` and its size. */
const WITHOUT_MODE = /^[^\t]*\tfile\t/
const LEAVES_TREE = /(?:^|\/)\.{0,2}(?:\/|$)/

/** Returns the line of an item, with its line break. */
export function lineOf({ sha256 = '-', kind, content, stamp = '', path }: RecordedItem): string {
  return `${sha256}\t${kind}\t${quote(content)}\t${stamp}\t${quote(path)}\n`
}

/**
 * Parses a line of a record that was written at `recordedAt`, in nanoseconds. An item that was changed at that time or
 * later gets no stamp, because another change may have followed in the same tick of the file system's clock. A change
 * in the same tick as an earlier stamp goes unnoticed; see `ExtractedFile`. Throws TreeRecordDamage.
 */
export function parseLine(line: string, recordedAt: string): RecordedItem {
  if (!LINE.test(line)) throw new TreeRecordDamage('it has a line that this action does not write')
  const kindAt = line.indexOf('\t') + 1
  const contentAt = line.indexOf('\t', kindAt) + 1
  const stampAt = line.indexOf('\t', contentAt) + 1
  const pathAt = line.lastIndexOf('\t') + 1
  const path = unquote(line.slice(pathAt))
  if (LEAVES_TREE.test(path)) throw new TreeRecordDamage('it has a path that leaves the tree')
  const changedAt = line.slice(line.lastIndexOf('\t', pathAt - 2) + 1, pathAt - 1)
  return {
    path,
    kind: line.slice(kindAt, contentAt - 1),
    content: unquote(line.slice(contentAt, stampAt - 1)),
    stamp: isEarlier(changedAt, recordedAt) ? line.slice(stampAt, pathAt - 1) : undefined,
    sha256: kindAt === 2 ? undefined : line.slice(0, kindAt - 1),
  }
}

/** Compares two times in nanoseconds without parsing them. No host with a correct clock has a time before 1970. */
function isEarlier(time: string, other: string): boolean {
  if (time === '' || time.startsWith('-') || other.startsWith('-')) return false
  return time.length < other.length || (time.length === other.length && time < other)
}

/** A recorded item, unparsed: its path, and every field that distinguishes its content. */
export interface RecordedLine {
  readonly path: string
  readonly fields: string
}

/** Returns the line that an item would have. */
export function asLine({ sha256 = '-', kind, content, path }: RecordedItem): RecordedLine {
  return { path, fields: `${sha256}\t${kind}\t${quote(content)}` }
}

/** True if two lines have the same content. An item from a record of an earlier version of the action has no mode. */
export function isAlike({ fields }: RecordedLine, other: RecordedLine): boolean {
  if (fields === other.fields) return true
  return (
    (WITHOUT_MODE.test(fields) || WITHOUT_MODE.test(other.fields)) && withoutMode(fields) === withoutMode(other.fields)
  )
}

/** Returns the unparsed lines of a record whose digest was verified, in order. */
export function* linesIn(text: string): Generator<RecordedLine, undefined> {
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
export function quote(text: string): string {
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

function withoutMode(fields: string): string {
  return fields.replace(/^([^\t]*)\t[0-7]{1,4}\t/, '$1\tfile\t')
}
