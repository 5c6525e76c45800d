import { pipeline } from 'node:stream/promises'
import { createZstdDecompress } from 'node:zlib'
import { extract, type Header } from 'tar-stream'
import { z } from 'zod'
import { type ArchiveEntry, EntryList } from '../archive/archive-entry.ts'
import { requireSafeTree } from '../archive/entries.ts'
import { boundedTar } from '../archive/tar-bounds.ts'
import { HubError } from '../errors.ts'
import { MAX_PLAN_BYTES, requireYamlSize } from '../yaml-document.ts'
import { decryptPieces } from './encrypt.ts'
import type { SealedRelease } from './publish.ts'
import { PLAN_PATH } from './source-tree.ts'

const MANIFEST = 'manifest.json'
const MAX_MANIFEST_BYTES = 1024 * 1024
const TYPES: ReadonlyMap<string, ArchiveEntry['type']> = new Map([
  ['file', 'file'],
  ['contiguous-file', 'file'],
  ['directory', 'directory'],
  ['symlink', 'symlink'],
])

const manifestSchema = z.object({
  format_version: z.literal('1'),
  project_id: z.string(),
  version: z.string(),
  plugins: z.array(z.unknown()).min(1),
  content_sha256: z.string(),
})

/**
 * Opens a sealed file whose signature and key match. Throws HubError 400 if hosts refuse its content, at least by
 * default. They refuse anything but a tar in one zstd stream, unsafe entries, and too many entries or bytes. They also
 * refuse a plan that is missing or too large, and a manifest that is missing or invalid, or names another project or
 * version. This check only helps publishers: each host decides for itself what it accepts. Keeps only the listing and
 * the manifest in memory.
 */
export async function requireDeployableProject({ bytes, release }: SealedRelease): Promise<void> {
  const { entries, sizes, manifest } = await readTar({ bytes, release })
  const tree = requireSafeTree(entries, { flattens: false })
  const plan = tree.fileAt(PLAN_PATH)
  if (plan === undefined) throw refused(`has no ${PLAN_PATH}`)
  requireYamlSize(PLAN_PATH, sizes.get(plan.name) ?? 0, MAX_PLAN_BYTES)
  if (manifest === undefined) throw refused(`has no ${MANIFEST} at its root`)
  requireManifestOf(release, manifest)
}

interface Content {
  readonly entries: readonly ArchiveEntry[]
  /** The size of each file in bytes, by name. */
  readonly sizes: ReadonlyMap<string, number>
  readonly manifest: string | undefined
}

async function readTar({ bytes, release }: SealedRelease): Promise<Content> {
  const decrypted = decryptPieces({ bytes, dek: Buffer.from(release.dek, 'base64') })
  const tar = extract()
  const unpacking = pipeline(decrypted, createZstdDecompress(), boundedTar, tar)
  // An error of the pipeline also ends the loop below.
  unpacking.catch(() => {})
  const list = new EntryList()
  const sizes = new Map<string, number>()
  let manifest: string | undefined
  try {
    for await (const entry of tar) {
      const found = entryOf(entry.header)
      const chunks: Uint8Array[] = []
      for await (const chunk of entry as AsyncIterable<Uint8Array>) if (found.name === MANIFEST) chunks.push(chunk)
      if (found.name === MANIFEST) manifest = Buffer.concat(chunks).toString('utf8')
      if (found.name === '') continue
      list.add(found)
      sizes.set(found.name, entry.header.size ?? 0)
    }
    await unpacking
  } catch (error) {
    throw error instanceof HubError ? error : refused('is not a single zstd stream of a complete tar file')
  }
  return { entries: list.entries, sizes, manifest }
}

/** Drops the `./` with which many programs begin each name. This leaves the entry of the root folder without a name. */
function entryOf({ name, type, linkname, size }: Header): ArchiveEntry {
  const plain = name.replace(/^(?:\.\/)+/, '').replace(/^\.$/, '')
  if (plain === MANIFEST && (size ?? 0) > MAX_MANIFEST_BYTES)
    throw refused(`has a ${MANIFEST} of more than ${MAX_MANIFEST_BYTES} bytes`)
  return { name: plain, type: TYPES.get(type ?? 'file') ?? 'other', target: linkname ?? '' }
}

function requireManifestOf({ project_id, version }: SealedRelease['release'], text: string): void {
  const { success, data, error } = manifestSchema.safeParse(parseJson(text))
  if (!success)
    throw refused(
      `has a ${MANIFEST} that hosts cannot read (${error.issues[0]?.path.join('.') || 'not a JSON object'})`,
    )
  for (const [name, found, expected] of [
    ['project', data.project_id, project_id],
    ['version', data.version, version],
  ] as const)
    if (found !== expected)
      throw refused(`has the ${MANIFEST} of ${name} ${JSON.stringify(found.slice(0, 100))}, not ${expected}`)
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

function refused(problem: string): HubError {
  return new HubError(
    400,
    `Hosts refuse this sealed file, because it ${problem}: correct that and seal the project again.`,
  )
}
