import { lstatSync, mkdirSync, readdirSync, renameSync, rmdirSync, unlinkSync, writeFileSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { makeOpenDirectorySync } from '../files/durable.ts'
import { removeIfEmptySync } from '../files/remove-tree.ts'
import type { Layout } from './layout.ts'
import { findExposureOf } from './permissions.ts'
import { readStateFileSync } from './state-file.ts'
import { nearestDirectory } from './switchable.ts'

/** A directory of parts, relative to the project root. */
interface OfShelf {
  readonly directory: string
}

/** Creates a directory of mode 0755 in a deployment's folder as if it were created in a shelf; see `makeStandInSync`. */
export function makeInShelfSync(layout: Layout, path: string, shelf: OfShelf): void {
  const standIn = `${path}.shelf`
  makeStandInSync(layout, standIn, shelf)
  makeOpenDirectorySync(join(standIn, 'tree'))
  renameSync(join(standIn, 'tree'), path)
  rmdirSync(standIn)
}

/**
 * Creates a private directory (0700) directly in a deployment's folder or deeper. What is created in that directory gets
 * the group, the setgid bit and the default ACL that it would get in the shelf, or in the directory in which a missing
 * shelf will be created. Node cannot read an ACL, and getfacl may be missing. So the directory is always created in the
 * shelf, and is moved out at once. While it is there, no other user can open it, and the host framework ignores it,
 * because its name begins with `_`. A dry run's folder gets an ordinary directory, because the host stays as it is.
 *
 * Throws DeploymentError `unsafe_host` if another user has replaced the directory in the shelf, and file system errors.
 */
export function makeStandInSync(layout: Layout, path: string, { directory }: OfShelf): void {
  mkdirSync(path, { mode: 0o700 })
  const folder = deploymentFolder(layout, path)
  if (folder === undefined) return
  const made = join(nearestDirectory(join(layout.root, directory)), `${NAME}${basename(folder)}`)
  const note = join(folder, NOTE)
  writeFileSync(note, made, { flag: 'wx', mode: 0o600 })
  mkdirSync(made, { mode: 0o700 })
  renameSync(made, path)
  requireOurs(path, made)
  unlinkSync(note)
}

/**
 * Removes the directory that a deployment left in a shelf because it was killed, or failed, before the move. Removes
 * nothing but an empty directory that has this deployment's name.
 */
export function removeStandInSync(folder: string): void {
  const note = join(folder, NOTE)
  const made = readStateFileSync(note)
  if (made === undefined) return
  if (basename(made) === `${NAME}${basename(folder)}`) removeIfEmptySync(made)
  unlinkSync(note)
}

const NAME = '_hub-deploy-'
/** In the deployment's folder: names the directory in the shelf while that directory may be there. */
const NOTE = 'stand-in'

/** Returns the folder of the deployment that a path lies in, if that folder is a staging folder. */
function deploymentFolder({ staging }: Layout, path: string): string | undefined {
  const [name = ''] = relative(staging, path).split('/')
  return name === '..' ? undefined : join(staging, name)
}

/** Moves a directory back to the shelf unless it is ours and empty. */
function requireOurs(path: string, made: string): void {
  const us = process.getuid?.()
  if (us === undefined) return
  if (findExposureOf(lstatSync(path), us) === undefined && readdirSync(path).length === 0) return
  renameSync(path, made)
  throw new DeploymentError(
    'unsafe_host',
    `${made}, which this run had just created, was replaced by another user: find out who can write to ${dirname(made)}.`,
  )
}
