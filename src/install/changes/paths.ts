import { z } from 'zod/mini'
import { EXTENSIONS_DIRECTORY, PARTS_DIRECTORY_PATTERN } from '../../core/identifiers.ts'
import { placeAt, placeName } from '../host/layout.ts'
import {
  BELOW_PATTERN as BELOW,
  PART_NAME_PATTERN as NAME,
  PLACE_PATTERN as PLACE,
  SNAPSHOT_PATTERN as SNAPSHOT,
} from '../host/rows.ts'

// The paths, relative to the project root, at which each kind of change may happen. No change moves or deletes anything
// else, whatever a journal says.

const UUID = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
const STAGED = `\\.hub-deploy/staging/${UUID}${BELOW}`

/** A host framework injects settings only into plugins. */
const IN_PLUGIN = `(?!${EXTENSIONS_DIRECTORY}/)${PLACE}${BELOW}`

/** A directory of parts, or one for settings inside an installed plugin. */
export const directorySchema = pathSchema(`(?:${PARTS_DIRECTORY_PATTERN}|${IN_PLUGIN})`)
/** A settings file next to an installed part or inside a plugin. */
export const settingsPathSchema = pathSchema(`(?:${PLACE}\\.env|${IN_PLUGIN})`)
export const stagedPathSchema = pathSchema(STAGED)
/** Either end of a move. */
export const movablePathSchema = pathSchema(`(?:${PLACE}|${SNAPSHOT}(?:${BELOW})?|${STAGED})`)

const IS_PLACE = exactly(PLACE)
const IS_SNAPSHOT = exactly(SNAPSHOT)
const IS_STAGED = exactly(STAGED)
const KEPT_PATH = new RegExp(`^${SNAPSHOT}(${BELOW})$`, 'u')
const OF_SNAPSHOT = new RegExp(`^\\.hub-deploy/snapshots/(${NAME})/[^/]+(${BELOW})?$`, 'u')
/** In a staging folder: a tree that waits to be restored to its place, and a kept path that such a tree contained. */
const RESTORED = new RegExp(`^\\.hub-deploy/staging/${UUID}/restored/(${NAME})$`)
const REPLACED = new RegExp(`^\\.hub-deploy/staging/${UUID}/replaced/(${NAME})(${BELOW})$`, 'u')

/**
 * True if a deployment makes moves of this kind: a tree out of a place or into a place, or a kept path from the old
 * tree to the new one. A rollback also moves a snapshot into the staging folder, and a kept path that this snapshot
 * contained into another snapshot.
 */
export function isMove({ from, to }: { readonly from: string; readonly to: string }): boolean {
  if (IS_PLACE.test(from))
    return IS_SNAPSHOT.test(to) && to.startsWith(`.hub-deploy/snapshots/${placeName(placeAt(from))}/`)
  if (IS_STAGED.test(from)) return IS_PLACE.test(to) || isPutInSnapshot({ from, to })
  if (isRestoring({ from, to })) return true
  return isKeptMove({ from, to }) && to.endsWith(KEPT_PATH.exec(from)?.[1] ?? '')
}

/** True if the move takes a snapshot to the staging folder, from which it returns to its place. */
export function isRestoring({ from, to }: { readonly from: string; readonly to: string }): boolean {
  const [, place, inner] = OF_SNAPSHOT.exec(from) ?? []
  return place !== undefined && inner === undefined && RESTORED.exec(to)?.[1] === place
}

/** True if the move takes a kept path from an old tree, which is a snapshot, into the new tree, which is staged. */
export function isKeptMove({ from, to }: { readonly from: string; readonly to: string }): boolean {
  return KEPT_PATH.test(from) && IS_STAGED.test(to)
}

/** True if the move gives a snapshot the kept path that another snapshot of the same place contained. */
function isPutInSnapshot({ from, to }: { readonly from: string; readonly to: string }): boolean {
  const [, place, path] = REPLACED.exec(from) ?? []
  const [, shelf, inner] = OF_SNAPSHOT.exec(to) ?? []
  return place !== undefined && place === shelf && path === inner
}

/** Returns the deployment whose staging folder contains the path, or undefined if none does. */
export function stagedBy(path: string): string | undefined {
  return IS_STAGED.test(path) ? path.split('/')[2] : undefined
}

/** True if versions may be installed at this path. */
export function isPlacePath(path: string): boolean {
  return IS_PLACE.test(path)
}

/** True if the path is a snapshot or lies in a staging folder: only this action puts files there. */
export function isOwnPath(path: string): boolean {
  return IS_STAGED.test(path) || IS_SNAPSHOT.test(path)
}

function pathSchema(pattern: string) {
  return z.string().check(z.regex(exactly(pattern), { error: 'is not a path that this change may touch' }))
}

function exactly(pattern: string): RegExp {
  return new RegExp(`^${pattern}$`, 'u')
}
