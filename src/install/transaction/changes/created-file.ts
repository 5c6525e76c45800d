import { linkSync, lstatSync, realpathSync, renameSync, type Stats, unlinkSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { z } from 'zod/mini'
import { isWithoutLinks, linkOrClaimSync, syncDirectory } from '../../files/durable-files.ts'
import { type OpenDirectory, withDirectorySync } from '../../files/open-directory.ts'
import { isAbsent, lstatIfPresentSync, pathExistsSync } from '../../files/trees/tree-walk.ts'
import { settingsPathSchema, stagedPathSchema } from './change-paths.ts'

/**
 * A second name for a complete staged file, whose first name stays in staging as proof that the file is ours. If the
 * file system has no hard links, an empty file claims the name, and the staged file then replaces the empty one.
 */
export const createdFileSchema = z.object({
  type: z.literal('create_file'),
  staged: stagedPathSchema,
  path: settingsPathSchema,
  /** The inode of the staged file. */
  ino: z.exactOptional(z.string().check(z.regex(/^[0-9]{1,20}$/))),
})
export type CreatedFile = z.infer<typeof createdFileSchema>

/** Returns the file as it is announced, with the inode of the staged file. */
export function identifyFileSync(root: string, file: CreatedFile): CreatedFile {
  return { ...file, ino: String(lstatSync(join(root, file.staged), { bigint: true }).ino) }
}

/** Creates the file, durably. Never replaces another file. */
export async function createFromStaged(root: string, { staged, path }: CreatedFile): Promise<void> {
  const [from, to] = [join(root, staged), join(root, path)]
  if (!linkOrClaimSync(from, to)) await syncDirectory(dirname(from))
  await syncDirectory(dirname(to))
}

/** Removes the file at the path if it is the created file. Returns whether it was removed. */
export async function removeCreated(root: string, file: CreatedFile): Promise<boolean> {
  const [staged, path] = [join(root, file.staged), join(root, file.path)]
  const wasMade = withShelf(path, shelf => {
    if (!isOurs(root, file, shelf)) return false
    const at = shelf.entry(basename(path))
    if (pathExistsSync(staged)) unlinkSync(at)
    // Return the file to staging, where it proves that a file created at the path later is not ours.
    else renameSync(at, staged)
    return true
  })
  if (wasMade) await syncDirectory(dirname(path))
  return wasMade
}

/** True if the file at the path is the created file. */
export function isCreated(root: string, file: CreatedFile): boolean {
  return withShelf(join(root, file.path), shelf => isOurs(root, file, shelf))
}

/** Opens the path's folder. Follows a symlink to it, because an operator may have set up a shelf as a symlink. */
function withShelf(path: string, act: (shelf: OpenDirectory) => boolean): boolean {
  return pathExistsSync(dirname(path)) && withDirectorySync(realpathSync(dirname(path)), act)
}

function isOurs(root: string, file: CreatedFile, shelf: OpenDirectory): boolean {
  const path = join(root, file.staged)
  const there = statEntry(shelf, basename(file.path))
  if (there === undefined) return false
  const staged = lstatIfPresentSync(path)
  if (staged === undefined) return String(there.ino) === file.ino && pathExistsSync(dirname(path))
  return isSame(staged, there) || (isClaim(there) && !hasLinks(path))
}

/** True if the file system has hard links. Only without them does this action claim a path with an empty file. */
function hasLinks(path: string): boolean {
  try {
    linkSync(path, `${path}.link`)
    unlinkSync(`${path}.link`)
    return true
  } catch (error) {
    return !isWithoutLinks(error)
  }
}

function isSame(a: Stats, b: Stats): boolean {
  return a.ino === b.ino && a.dev === b.dev
}

function isClaim(found: Stats): boolean {
  return found.isFile() && found.size === 0 && found.uid === process.getuid?.() && (found.mode & 0o777) === 0o600
}

function statEntry(folder: OpenDirectory, name: string): Stats | undefined {
  try {
    return lstatSync(folder.entry(name))
  } catch (error) {
    if (isAbsent(error)) return undefined
    throw error
  }
}
