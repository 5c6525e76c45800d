import { unsafeEntry } from '../archive/planned-tree.ts'
import { ArtifactError } from '../errors.ts'
import { EXTENSIONS_DIRECTORY } from '../identifiers.ts'
import { cleanForeignText } from '../text.ts'
import { type DigestedFile, inTreeOrder, orderedTreeDigest } from '../trust/tree-digest.ts'
import { invalidManifest, isSourced, type Manifest, type ManifestPart } from './manifest.ts'

export interface LinkedPath {
  readonly path: string
  /** The file that the symlink leads to; null if it leads to a directory, or to nothing in the archive. */
  readonly file: string | null
  /** The deepest directory that the way to the target never leaves. */
  readonly reach: string
}

/** A project's extracted archive; all paths are relative to its root. */
export interface ProjectTree {
  /** In the order of the tree digest. */
  readonly files: readonly DigestedFile[]
  readonly symlinks: readonly LinkedPath[]
  readonly directories: readonly string[]
}

/** Facts that the operator should know about a project's content, although the digest of the content matches. */
export interface ContentNotices {
  /**
   * One for each embedded part whose own `sha256` does not match its files; some packers compute it over other files.
   */
  readonly warnings: readonly string[]
  /** The directories of plugins and extensions that the manifest does not name; they are never installed. */
  readonly unnamed: readonly string[]
}

/**
 * Vouches for an extracted project. Its tree digest is `content_sha256`; the digest leaves out the root's
 * `manifest.json`, and covers the target's bytes for a symlink to a regular file (docs/files.md, "Tree digest"). Each
 * embedded part of the manifest has its directory. No symlink leads out of a part's directory, because parts are
 * installed separately. Throws ArtifactError `content_mismatch` or `invalid_manifest`, and ArchiveError
 * `unsafe_archive`.
 */
export function verifyContent(manifest: Manifest, tree: ProjectTree): ContentNotices {
  const digested = digestedFiles(tree)
  verifyContentDigest(manifest, digested)
  const directories = new Set(tree.directories)
  verifyFolders(manifest.parts, directories)
  verifySymlinksStayInside(manifest.parts, tree.symlinks)
  return { warnings: ownDigestWarnings(manifest.parts, digested), unnamed: unnamedFolders(manifest, directories) }
}

/**
 * Returns the files that a tree digest covers, in the digest's order: the regular files, and symlinks to them with the
 * target's bytes (docs/files.md, "Tree digest").
 */
export function digestedFiles({ files, symlinks }: Pick<ProjectTree, 'files' | 'symlinks'>): readonly DigestedFile[] {
  if (symlinks.length === 0) return files
  const digests = new Map(files.map(({ path, sha256 }) => [path, sha256]))
  const linked = symlinks.flatMap(({ path, file }) => {
    const sha256 = digests.get(file ?? '')
    return sha256 === undefined ? [] : [{ path, sha256 }]
  })
  return inTreeOrder([...files, ...linked])
}

function verifyContentDigest({ contentSha256 }: Manifest, digested: readonly DigestedFile[]): void {
  const found = orderedTreeDigest(digested.filter(({ path }) => path !== 'manifest.json'))
  if (found === contentSha256) return
  throw new ArtifactError(
    'content_mismatch',
    `The project's manifest.json has the digest ${contentSha256} for the project's content, but the files have the digest ${found}: nothing was installed; the publisher must seal the project again.`,
  )
}

function verifyFolders(parts: readonly ManifestPart[], directories: ReadonlySet<string>): void {
  const embedded = parts.filter(part => !isSourced(part))
  const missing = embedded.filter(({ folder }) => !directories.has(folder)).map(({ folder }) => folder)
  if (missing.length === 0) return
  const found = cleanForeignText(missing.join(', '))
  throw invalidManifest(`each embedded part must have its directory in the archive, but found none at ${found}`)
}

/**
 * Refuses symlinks that leave their part's directory, even if they lead back into it: the directory may be installed
 * under another name.
 */
function verifySymlinksStayInside(parts: readonly ManifestPart[], symlinks: readonly LinkedPath[]): void {
  const folders = new Set(parts.map(({ folder }) => folder))
  const folderOf = folderFinder(parts)
  for (const { path, reach } of symlinks) {
    const folder = folderOf(path)
    if (!folders.has(folder) || `${reach}/`.startsWith(`${folder}/`)) continue
    throw unsafeEntry(path, `is a symlink that leads out of ${folder}, which is installed separately`)
  }
}

function ownDigestWarnings(parts: readonly ManifestPart[], digested: readonly DigestedFile[]): string[] {
  const folderOf = folderFinder(parts)
  const filesOf = Map.groupBy(digested, ({ path }) => folderOf(path))
  return parts.flatMap(({ folder, sha256, source }) => {
    if (sha256 === null || source !== null) return []
    const files = filesOf.get(folder) ?? []
    const found = orderedTreeDigest(
      files.map(file => ({ path: file.path.slice(folder.length + 1), sha256: file.sha256 })),
    )
    if (sha256 === found) return []
    return [
      `The manifest's sha256 of ${folder} is ${sha256}, but the files there have ${found}. The digest of the whole content matches, so this is only a warning.`,
    ]
  })
}

function unnamedFolders({ parts, pluginsDirname }: Manifest, directories: ReadonlySet<string>): string[] {
  const named = new Set(parts.map(({ folder }) => folder))
  return [...directories].filter(path => {
    const directory = path.slice(0, Math.max(0, path.lastIndexOf('/')))
    return (directory === pluginsDirname || directory === EXTENSIONS_DIRECTORY) && !named.has(path)
  })
}

/**
 * Returns a function from a path to its first components. For a path in a plugin or extension, they are the directory
 * of that plugin or extension.
 */
function folderFinder(parts: readonly ManifestPart[]): (path: string) => string {
  const [plugin] = parts.filter(({ shelf }) => shelf === 'plugins')
  const levels = plugin?.folder.split('/').length ?? 2
  return path => firstComponents(path, path.startsWith(`${EXTENSIONS_DIRECTORY}/`) ? 2 : levels)
}

function firstComponents(path: string, count: number): string {
  let end = -1
  for (let nth = 0; nth < count; nth++) {
    end = path.indexOf('/', end + 1)
    if (end === -1) return path
  }
  return path.slice(0, end)
}
