import { posix } from 'node:path'
import { z } from 'zod/mini'
import { inTreeOrder, treeDigest } from '../../../../core/trust/tree-digest.ts'
import { digestSchema, innerPathSchema } from '../../record-fields.ts'
import { describeDamage, readStateFileSync } from '../../state-file.ts'
import type { RecordedItem } from './recorded-item.ts'
import { TreeRecordDamage } from './tree-record-damage.ts'

const treeSchema = z.lazy(() =>
  z.object({
    files: z.array(
      z.object({
        path: innerPathSchema,
        sha256: digestSchema,
        size: z.int().check(z.nonnegative()),
        mode: z.literal([0o644, 0o755]),
      }),
    ),
    symlinks: z.array(
      z.object({
        path: innerPathSchema,
        target: z.string().check(z.regex(/^\P{Cc}{1,4096}$/u, { error: 'must be the target of a symlink' })),
        /**
         * The digest of the file that the symlink leads to in the end, after any other symlinks; absent if there is
         * no such file.
         */
        sha256: z.exactOptional(digestSchema),
      }),
    ),
  }),
)
type EarlierTree = z.infer<typeof treeSchema>

/**
 * Returns the items in a record of an earlier version of the action, in order; undefined if there is no such record.
 * The name of the record is the digest of its entries. Trees that differed only in modes shared one such record, so its
 * modes are not returned. Throws TreeRecordDamage, or as `readStateFileSync` does.
 */
export function readEarlierRecord(path: string, digest: string): RecordedItem[] | undefined {
  const text = readStateFileSync(path)
  if (text === undefined) return undefined
  const { files, symlinks } = parseTree(text, digest)
  return inTreeOrder([
    ...files.map(({ path, size, sha256 }) => ({ path, kind: 'file', content: String(size), sha256, stamp: undefined })),
    ...symlinks.map(({ path, target, sha256 }) => ({ path, kind: 'link', content: target, sha256, stamp: undefined })),
  ])
}

function parseTree(text: string, digest: string): EarlierTree {
  try {
    const tree = completed(treeSchema.parse(JSON.parse(text)))
    if (digestOf(tree) === digest) return tree
  } catch (error) {
    throw new TreeRecordDamage(describeDamage(error), { cause: error })
  }
  throw new TreeRecordDamage('its files do not match the digest in its name')
}

function digestOf({ files, symlinks }: EarlierTree): string {
  const throughLinks = symlinks.flatMap(({ path, sha256 }) => (sha256 === undefined ? [] : [{ path, sha256 }]))
  return treeDigest([...files, ...throughLinks])
}

/** In the oldest records, only a symlink's target shows which file the symlink leads to. */
function completed({ files, symlinks }: EarlierTree): EarlierTree {
  const digests = new Map(files.map(({ path, sha256 }) => [path, sha256]))
  const known = symlinks.map(symlink => {
    const sha256 = symlink.sha256 ?? digests.get(posix.join(posix.dirname(symlink.path), symlink.target))
    return sha256 === undefined ? symlink : { ...symlink, sha256 }
  })
  return { files, symlinks: known }
}
