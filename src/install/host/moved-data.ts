import { readlinkSync } from 'node:fs'
import { dirname, isAbsolute, join, relative, resolve } from 'node:path'
import { DeploymentError } from '../../core/errors.ts'
import { lstatIfPresentSync, pathExistsSync, walkTree } from '../files/walk.ts'
import { installPath, isSamePlace, type Layout, type Place, placePath, settingsPath } from './layout.ts'
import { type Chooser, findLeftBehind, formerPlace, KEEP_PREVIOUS, type PreviousInstall } from './previous-install.ts'
import type { Origin } from './rows.ts'
import { presentPaths } from './snapshots.ts'
import { findRealDirectory, realDirectory, type SwitchingHost } from './switchable.ts'

/**
 * A part and its target. The target may differ from the part's current place, or, if the part was removed, from its
 * former place.
 */
export interface Move {
  readonly target: Place
  readonly previous: PreviousInstall
  readonly origin: Origin
  /** Who chose the directory of `target`. */
  readonly chosenBy: Chooser
}

/**
 * Checks that a part keeps this host's data (the settings, and the targets of symlinks in the kept paths) when the
 * part's directory changes. Throws DeploymentError `unsafe_host` or `place_taken`, and file system errors.
 */
export async function requireMovableData(host: SwitchingHost, move: Move): Promise<void> {
  if (isSamePlace(move.target, formerPlace(move.previous, move.origin))) return
  requireMovableSettings(host.layout, move)
  await requireMovableLinks(host, move)
}

/**
 * Refuses settings that are not a regular file, because the target of a symlink may be relative to the symlink's
 * directory. If both places have settings, only the operator may choose between them.
 */
function requireMovableSettings(layout: Layout, { target, previous, origin, chosenBy }: Move): void {
  const [from, to] = [settingsPath(layout, formerPlace(previous, origin)), settingsPath(layout, target)]
  const found = lstatIfPresentSync(from)
  if (found === undefined) return
  if (pathExistsSync(to)) {
    if (chosenBy === 'operator') return
    throw new DeploymentError(
      'place_taken',
      `${placePath(target)} would get its settings from ${to}, although ${from} has those that were used until now. Nothing was changed. Remove whichever of the two must not be used, or ${KEEP_PREVIOUS[chosenBy]}.`,
    )
  }
  if (found.isFile()) return
  throw new DeploymentError(
    'unsafe_host',
    `${from} is not a regular file, so these settings cannot be moved to ${to} with ${placePath(target)}. Nothing was changed. Move the settings yourself, or ${KEEP_PREVIOUS[chosenBy]}.`,
  )
}

async function requireMovableLinks({ layout, keepPaths }: SwitchingHost, move: Move): Promise<void> {
  const { target, previous, origin, chosenBy } = move
  const [former, old] = [formerPlace(previous, origin), installPath(layout, previous.place)]
  const keeper = pathExistsSync(old) ? old : findLeftBehind(layout, previous, origin)
  const directory = findRealDirectory(layout, former.directory)
  if (keeper === undefined || directory === undefined) return
  const [before, after] = [join(directory, former.id), join(realDirectory(layout, target.directory), target.id)]
  for (const { path, link } of await keptLinks(keeper, keepPaths)) {
    const [leads, wouldLead] = [before, after].map(place => resolve(place, dirname(path), link)) as [string, string]
    const isInside = `${leads}/`.startsWith(`${before}/`)
    if (isInside ? !isAbsolute(link) : leads === wouldLead) continue
    throw new DeploymentError(
      'unsafe_host',
      `Among the kept paths, ${join(keeper, path)} is a symlink to ${link}. After the move to ${placePath(target)}, the symlink would lead elsewhere or nowhere. Nothing was changed. Make the symlink ${isInside ? 'relative' : 'absolute'}, or ${KEEP_PREVIOUS[chosenBy]}.`,
    )
  }
}

interface KeptLink {
  /** Relative to the part. */
  readonly path: string
  readonly link: string
}

/** Returns each symlink that is a kept path, or is inside a kept path. */
async function keptLinks(root: string, keepPaths: readonly string[]): Promise<KeptLink[]> {
  const found: KeptLink[] = []
  for (const kept of presentPaths(root, keepPaths)) {
    const path = join(root, kept)
    const stat = lstatIfPresentSync(path)
    if (stat?.isSymbolicLink()) found.push({ path: kept, link: readlinkSync(path) })
    if (!stat?.isDirectory()) continue
    for (const entry of await walkTree(path))
      if (entry.type === 'symlink') found.push({ path: relative(root, join(path, entry.path)), link: entry.target })
  }
  return found
}
