import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ArchiveError } from '../../src/core/errors.ts'
import { type TarEntry, TarListing } from '../../src/core/tar-listing.ts'
import { readTarMembers } from '../../src/install/tar-members.ts'
import { buildTar, file, symlink } from '../archives/tar-builder.ts'

const LIMITS = { maxExtractedBytes: 1_000_000, maxEntries: 100 }
const TAR = buildTar([file('a', 'abc'), symlink('l', 'a'), file('b', 'x'.repeat(2000))])

function list(tar: Buffer): TarEntry[] {
  const listing = new TarListing(LIMITS)
  listing.add(tar)
  return listing.finish()
}

async function* piecesOf(tar: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < tar.length; at += 700) yield tar.subarray(at, at + 700)
}

async function read(tar: Buffer, listing: TarEntry[]): Promise<[string, string][]> {
  const members: [string, string][] = []
  for await (const { entry, data } of readTarMembers(piecesOf(tar), listing)) {
    let text = ''
    for await (const piece of data) text += piece.toString('latin1')
    members.push([entry.name, text])
  }
  return members
}

const others: Record<string, Buffer> = {
  'another name': buildTar([file('a', 'abc'), symlink('l', 'a'), file('c', 'x'.repeat(2000))]),
  'another size': buildTar([file('a', 'abcd'), symlink('l', 'a'), file('b', 'x'.repeat(2000))]),
  'another order': buildTar([symlink('l', 'a'), file('a', 'abc'), file('b', 'x'.repeat(2000))]),
  'a member more': buildTar([file('a', 'abc'), symlink('l', 'a'), file('b', 'x'.repeat(2000)), file('c')]),
  'a member less': buildTar([file('a', 'abc'), symlink('l', 'a')]),
}

describe('readTarMembers', () => {
  it('gives the data of each member', async () => {
    const expected = [
      ['a', 'abc'],
      ['l', ''],
      ['b', 'x'.repeat(2000)],
    ]
    assert.deepEqual(await read(TAR, list(TAR)), expected)
  })

  it('goes on to the next member when one is not read', async () => {
    const names: string[] = []
    for await (const { entry } of readTarMembers(piecesOf(TAR), list(TAR))) names.push(entry.name)
    assert.deepEqual(names, ['a', 'l', 'b'])
  })

  for (const [name, other] of Object.entries(others)) {
    it(`refuses a tar that has ${name} than was listed`, async () => {
      const isRefusal = (error: unknown) => error instanceof ArchiveError && error.code === 'invalid_archive'
      await assert.rejects(read(other, list(TAR)), isRefusal)
    })
  }

  it('passes on what reading the pieces throws', async () => {
    const reason = new Error('cancelled')
    async function* failing(): AsyncGenerator<Buffer> {
      yield TAR.subarray(0, 600)
      throw reason
    }
    await assert.rejects(async () => {
      for await (const { data } of readTarMembers(failing(), list(TAR))) for await (const _ of data);
    }, reason)
  })
})
