import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { type Pack, pack } from 'tar-stream'
import { HubError } from '../errors.ts'
import { readPieces } from './file-pieces.ts'
import type { FileMember, Member } from './member.ts'

export interface TarContent {
  readonly manifestJson: string
  readonly members: Iterable<Member>
  /** The modification time of every entry. */
  readonly time: Date
}

/**
 * A tar of `manifest.json` and the members, in their order. The same content gives the same bytes: every entry has the
 * same time, the owner 0, and the mode 0644 or 0755. The stream fails with HubError 400 when a file has changed.
 */
export async function* packMembers(content: TarContent): AsyncGenerator<Uint8Array> {
  const tar = pack()
  const chunks = (tar as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]() as AsyncIterableIterator<Uint8Array>
  addMembers(tar, content).catch(error => tar.destroy(error))
  yield* chunks
}

async function addMembers(tar: Pack, { manifestJson, members, time }: TarContent): Promise<void> {
  const manifest = Buffer.from(manifestJson)
  await addEntry(tar, { name: 'manifest.json', size: manifest.length, mode: 0o644, mtime: time }, [manifest])
  for (const member of members) await addMember(tar, member, time)
  tar.finalize()
}

function addMember(tar: Pack, member: Member, time: Date): Promise<void> {
  const header = { name: member.path, type: member.type, mode: modeOf(member), mtime: time }
  switch (member.type) {
    case 'file':
      return addEntry(tar, { ...header, size: member.size }, readUnchanged(member))
    case 'symlink':
      return addEntry(tar, { ...header, linkname: member.target }, [])
    case 'directory':
      return addEntry(tar, header, [])
  }
}

/** Waits until the entry is packed: if the tar failed while an entry was pending, its error would be unhandled. */
async function addEntry(tar: Pack, header: Parameters<Pack['entry']>[0], pieces: Iterable<Buffer>): Promise<void> {
  const packed = Promise.withResolvers<void>()
  const entry = tar.entry({ ...header, uid: 0, gid: 0 }, error => (error ? packed.reject(error) : packed.resolve()))
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
