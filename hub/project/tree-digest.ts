import { createHash } from 'node:crypto'
import { type Member, resolveLink } from './member.ts'

/**
 * The tree digest of the members below `folder` (docs/files.md, "Tree digest"), with paths relative to `folder`; `''`
 * means the whole tree. A symlink to a regular file counts as that file; other symlinks do not count. The caller must
 * have checked that no symlink leaves its plugin or extension.
 */
export function treeDigest(members: ReadonlyMap<string, Member>, folder: string): string {
  const prefix = folder === '' ? '' : `${folder}/`
  const lines = [...members.values()]
    .filter(({ path }) => path.startsWith(prefix))
    .sort((a, b) => comparePaths(a.path, b.path))
    .flatMap(member => {
      const file = member.type === 'symlink' ? resolveLink(members, member, { within: '' }) : member
      return file?.type === 'file' ? [`${member.path.slice(prefix.length)}:${file.sha256}`] : []
    })
  return createHash('sha256').update(lines.join('\n')).digest('hex')
}

/**
 * Orders paths component by component, each by code points. Comparing UTF-8 bytes with a zero byte as separator has
 * that effect, because the zero byte sorts before every other character.
 */
export function comparePaths(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a.replaceAll('/', '\0')), Buffer.from(b.replaceAll('/', '\0')))
}
