import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type Pack, pack } from 'tar-stream'
import { HubError } from '../errors.ts'
import { readPieces } from './file-pieces.ts'
import type { FileMember, Member } from './member.ts'

const BLOCK_BYTES = 512

export interface TarContent {
  readonly manifestJson: string
  readonly members: Iterable<Member>
  /** The modification time of every entry. */
  readonly time: Date
}

/**
 * Packs `manifest.json`, and then the members in their order, as a tar. The same content gives the same bytes: every
 * entry has the same time, the owner 0, and the mode 0644 or 0755. The stream fails with HubError 400 if a file has
 * changed.
 */
export function packMembers(content: TarContent): AsyncIterable<Uint8Array> {
  return packEntries(entriesOf(content))
}

/** Returns the size in bytes of the tar that packMembers makes of the content. Reads no file. */
export async function measureMembers(content: TarContent): Promise<number> {
  const entries = [...entriesOf(content)]
  let bytes = entries.reduce((sum, { size }) => sum + Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES, 0)
  const headers = entries.map(entry => ({ ...entry, size: 0, pieces: [] }))
  for await (const chunk of packEntries(headers)) bytes += chunk.length
  return bytes
}

interface Entry {
  readonly header: Omit<Parameters<Pack['entry']>[0], 'size'>
  readonly size: number
  readonly pieces: Iterable<Buffer>
}

function* entriesOf({ manifestJson, members, time }: TarContent): Generator<Entry> {
  const manifest = Buffer.from(manifestJson)
  const header = { name: 'manifest.json', mode: 0o644, mtime: time }
  yield { header, size: manifest.length, pieces: [manifest] }
  for (const member of members) yield entryOf(member, time)
}

function entryOf(member: Member, mtime: Date): Entry {
  const header = { name: member.path, type: member.type, mode: modeOf(member), mtime }
  switch (member.type) {
    case 'file':
      return { header, size: member.size, pieces: readUnchanged(member) }
    case 'symlink':
      return { header: { ...header, linkname: member.target }, size: 0, pieces: [] }
    case 'directory':
      return { header, size: 0, pieces: [] }
  }
}

async function* packEntries(entries: Iterable<Entry>): AsyncGenerator<Uint8Array> {
  const tar = pack()
  const chunks = (tar as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]() as AsyncIterableIterator<Uint8Array>
  addEntries(tar, entries).catch(error => tar.destroy(error))
  yield* chunks
}

async function addEntries(tar: Pack, entries: Iterable<Entry>): Promise<void> {
  for (const entry of entries) await addEntry(tar, entry)
  tar.finalize()
}

/**
 * Waits until the entry is packed: if the tar failed while an entry was pending, no code would handle the error of that
 * entry.
 */
async function addEntry(tar: Pack, { header, size, pieces }: Entry): Promise<void> {
  const packed = Promise.withResolvers<void>()
  const entry = tar.entry({ ...header, size, uid: 0, gid: 0 }, error =>
    error ? packed.reject(error) : packed.resolve(),
  )
  entry.on('error', packed.reject)
  try {
    for (const piece of pieces) if (!entry.write(piece)) await once(entry, 'drain')
    entry.end(null)
  } catch (error) {
    entry.destroy(error as Error)
  }
  await packed.promise
}

function modeOf(member: Member): number {
  return member.type === 'directory' || (member.type === 'file' && member.isExecutable) ? 0o755 : 0o644
}

function* readUnchanged({ source, path, sha256, size }: FileMember): Generator<Buffer> {
  const hash = createHash('sha256')
  let length = 0
  for (const piece of readPieces(source)) {
    length += piece.length
    if (length > size) break
    hash.update(piece)
    yield piece
  }
  if (hash.digest('hex') !== sha256)
    throw new HubError(400, `${path} changed while it was being sealed: seal the project again.`)
}
