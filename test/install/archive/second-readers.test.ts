import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, it } from 'node:test'
import fc from 'fast-check'
import { ArchiveError } from '../../../src/core/errors.ts'
import { ACCEPTED_ZIPS } from '../../archives/accepted-zips.ts'
import {
  buildTar,
  directory,
  GNU,
  gnuLong,
  pax,
  file as tarFile,
  symlink as tarSymlink,
  V7,
} from '../../archives/tar-builder.ts'
import { buildZip, file, symlink, unicodePath, directory as zipDirectory } from '../../archives/zip-builder.ts'
import { byExtent, sampled } from '../../extent.ts'
import { extractTar, extractZip, openedTar, withVerifiedArtifact } from './artifacts.ts'
import { type SecondReader, type Seen, seenIn, TAR_READERS, whyNot, ZIP_READERS } from './second-readers.ts'

const LIMITS = { maxExtractedBytes: 10_000_000, maxEntries: 1000 }
const MUTANTS = byExtent({ sample: 60, ci: 600 })
const SEED = 20260101

/**
 * A ZIP with a data descriptor, a Unicode path, a zip64 record and a comment. The ZIP has several names at the top, so
 * that nothing is flattened.
 */
const ZIP = buildZip(
  [
    file('a', 'first'),
    { ...file('d/b', 'second second'), descriptor: true },
    { ...file('grün', 'third'), both: { extra: unicodePath(Buffer.from('grün'), 'grün') } },
    zipDirectory('e/'),
    symlink('l', 'a'),
  ],
  { zip64: {}, end: { count: 0xffff }, comment: Buffer.from('commit') },
)
const TAR = buildTar([
  tarFile('a', 'first'),
  directory('d/'),
  pax({ path: 'd/long', mtime: '1.5' }),
  tarFile('cut', 'second'),
  gnuLong('L', 'd/longer'),
  tarFile('cut', 'third', { fields: { magic: GNU } }),
  tarFile('old', 'fourth', { fields: { magic: V7 } }),
  tarFile('c', 'fifth', { fields: { prefix: 'd/e' } }),
  tarSymlink('l', 'a'),
])

/**
 * Tars with a directory that has data. A tool that ignores the size in the header of a directory reads this data as
 * another member.
 */
const DIRECTORIES_WITH_DATA = ['./', '.', 'd/'].flatMap(name => {
  const data = buildTar([tarFile('hidden', 'evil')], Buffer.alloc(0))
  const items = [directory(name, { data }), tarFile('a', 'first')]
  return [buildTar(items), buildTar([pax({ size: String(data.length) }), ...items])]
})

/** ZIPs that bsdtar misreads, because of placeholder sizes in the local header or a 64-bit data descriptor. */
const MISREAD_BY_BSDTAR = [
  'a data descriptor and saturated sizes',
  'a data descriptor and empty zip64 sizes',
  'a data descriptor of 64 bits',
]
/** ZIPs that Python's zipfile misreads, because it ignores the Unicode path. */
const MISREAD_BY_PYTHON = ['a UTF-8 name without its flag that a Unicode path vouches for']
const MISREAD: ReadonlySet<string> = new Set([...MISREAD_BY_BSDTAR, ...MISREAD_BY_PYTHON])

/** The path of an archive that this action accepts, and the content that the action finds in the archive. */
interface Accepted {
  readonly path: string
  readonly seen: Seen
}

type Extract = (bytes: Buffer, folder: string) => Promise<unknown>

const extractZipTo: Extract = (bytes, target) =>
  withVerifiedArtifact(bytes, `${target}/..`, artifact => extractZip(artifact, { target, limits: LIMITS }))

const extractTarTo: Extract = async (bytes, target) => extractTar(await openedTar(bytes), { target, limits: LIMITS })

/** Copies of the original with one to three changed bytes, at the same places in every run. */
function mutants(original: Buffer): Buffer[] {
  const changes = fc.array(fc.tuple(fc.nat(original.length - 1), fc.nat(255)), { minLength: 1, maxLength: 3 })
  return fc.sample(changes, { seed: SEED, numRuns: MUTANTS }).map(changed => {
    const mutant = Buffer.from(original)
    for (const [at, byte] of changed) mutant.writeUInt8(byte, at)
    return mutant
  })
}

/** Extracts the archives, and returns those that this action accepts. */
async function acceptedOf(archives: readonly Buffer[], extract: Extract): Promise<Accepted[]> {
  const accepted: Accepted[] = []
  for (const [index, bytes] of archives.entries()) {
    const path = join(folder, `${extract.name}-${index}`)
    const target = `${path}-ours`
    mkdirSync(target)
    const isAccepted = await extract(bytes, target).then(() => true, refused)
    if (!isAccepted) continue
    writeFileSync(path, bytes)
    accepted.push({ path, seen: seenIn(target) })
  }
  return accepted
}

function refused(error: unknown): false {
  if (error instanceof ArchiveError) return false
  throw error
}

function compare(reader: SecondReader, accepted: readonly Accepted[]): void {
  const theirs = reader.read(accepted.map(({ path }) => path))
  for (const [index, { path, seen }] of accepted.entries()) {
    const other = theirs[index]
    if (other !== undefined) assert.deepEqual({ ...other }, { ...seen }, readFileSync(path, 'base64'))
  }
}

const folder = mkdtempSync(join(tmpdir(), 'second-readers-'))
after(() => rmSync(folder, { recursive: true, force: true }))

const kinds = ACCEPTED_ZIPS.filter(({ name, flattened }) => flattened === undefined && !MISREAD.has(name))
const zips = acceptedOf([...kinds.map(({ bytes }) => bytes), ZIP, ...mutants(ZIP)], extractZipTo)
const tars = acceptedOf([TAR, ...DIRECTORIES_WITH_DATA, ...mutants(TAR)], extractTarTo)

describe('a second reader', () => {
  for (const reader of sampled(ZIP_READERS, 2)) {
    it(
      `finds the same files in a ZIP as this action, or refuses it: ${reader.name}`,
      { skip: whyNot(reader) },
      async () => compare(reader, await zips),
    )
  }

  for (const reader of sampled(TAR_READERS, 1)) {
    it(
      `finds the same files in a tar as this action, or refuses it: ${reader.name}`,
      { skip: whyNot(reader) },
      async () => compare(reader, await tars),
    )
  }

  it('is also compared with this action on damaged archives', async t => {
    const [zip, tar] = [await zips, await tars]
    t.diagnostic(`accepted: ${zip.length} ZIPs, ${tar.length} tars, counting intact ones; damaged: ${MUTANTS} each`)
    assert.ok(zip.length > kinds.length + 1 && tar.length > 1)
  })
})
