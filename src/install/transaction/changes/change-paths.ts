import { z } from 'zod/mini'
import { PARTS_DIRECTORY_PATTERN } from '../../../core/plugins-directory.ts'
import { placeAt, placeName } from '../../host/layout.ts'
import {
  BELOW_PATTERN as BELOW,
  PART_NAME_PATTERN as NAME,
  PLACE_PATTERN as PLACE,
  SNAPSHOT_PATTERN as SNAPSHOT,
} from '../../host/record-fields.ts'

/**
 * Where each kind of change may happen, relative to the project root: what a journal says is moved or deleted nowhere
 * else, whatever it says.
 */
const UUID = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
const STAGED = `\\.hub-deploy/staging/${UUID}${BELOW}`

export const partsDirectorySchema = pathSchema(PARTS_DIRECTORY_PATTERN)
/** Next to an installed part, or in it. */
export const settingsPathSchema = pathSchema(`${PLACE}(?:\\.env|/\\.env)`)
export const stagedPathSchema = pathSchema(STAGED)
/** What is moved, and where it was. */
export const movablePathSchema = pathSchema(`(?:${PLACE}(?:\\.env)?|${SNAPSHOT}(?:${BELOW})?|${STAGED})`)

const IS_PLACE = exactly(PLACE)
const IS_SETTINGS = exactly(`${PLACE}\\.env`)
const IS_SNAPSHOT = exactly(SNAPSHOT)
const IS_STAGED = exactly(STAGED)
const KEPT_PATH = new RegExp(`^${SNAPSHOT}(${BELOW})$`, 'u')
const OF_SNAPSHOT = new RegExp(`^\\.hub-deploy/snapshots/(${NAME})/[^/]+(${BELOW})?$`, 'u')
/** Whose tree waits in a staging folder to be restored, and what another tree's kept path replaces in it. */
const RESTORED = new RegExp(`^\\.hub-deploy/staging/${UUID}/restored/(${NAME})$`)
const REPLACED = new RegExp(`^\\.hub-deploy/staging/${UUID}/replaced/(${NAME})(${BELOW})$`, 'u')

/**
 * Whether a deployment moves something in this way: out of a place, into it, or a kept path from the old tree to the
 * new; for a rollback also a snapshot into the staging folder, and a kept path that it contained into another snapshot.
 */
export function isMove({ from, to }: { readonly from: string; readonly to: string }): boolean {
  if (isSettingsMove({ from, to })) return true
  if (IS_PLACE.test(from))
    return IS_SNAPSHOT.test(to) && to.startsWith(`.hub-deploy/snapshots/${placeName(placeAt(from))}/`)
  if (IS_STAGED.test(from)) return IS_PLACE.test(to) || isPutInSnapshot({ from, to })
  if (isRestoring({ from, to })) return true
  return isKeptMove({ from, to }) && to.endsWith(KEPT_PATH.exec(from)?.[1] ?? '')
}

/** Whether the move takes the settings of a plugin along to another directory of plugins. */
export function isSettingsMove({ from, to }: { readonly from: string; readonly to: string }): boolean {
  if (!IS_SETTINGS.test(from) || !IS_SETTINGS.test(to)) return false
  const [before, after] = [placeAt(from), placeAt(to)]
  return before.shelf === 'plugins' && after.shelf === 'plugins' && before.id === after.id && from !== to
}

/** Whether the move takes a snapshot to the staging folder, from where it returns into its place. */
export function isRestoring({ from, to }: { readonly from: string; readonly to: string }): boolean {
  const [, place, inner] = OF_SNAPSHOT.exec(from) ?? []
  return place !== undefined && inner === undefined && RESTORED.exec(to)?.[1] === place
}

/** Whether the move takes a kept path out of an old tree, in the snapshots, into the new one, which is staged. */
export function isKeptMove({ from, to }: { readonly from: string; readonly to: string }): boolean {
  return KEPT_PATH.test(from) && IS_STAGED.test(to)
}

/** Whether the move gives a snapshot the kept path that another snapshot of the same place has contained. */
function isPutInSnapshot({ from, to }: { readonly from: string; readonly to: string }): boolean {
  const [, place, path] = REPLACED.exec(from) ?? []
  const [, shelf, inner] = OF_SNAPSHOT.exec(to) ?? []
  return place !== undefined && place === shelf && path === inner
}

/** The deployment whose staging folder contains the path, or undefined where none does. */
export function stagedBy(path: string): string | undefined {
  return IS_STAGED.test(path) ? path.split('/')[2] : undefined
}

/** Whether the path is one in which a version is installed. */
export function isPlacePath(path: string): boolean {
  return IS_PLACE.test(path)
}

/** Whether only this action can have put there what is at the path. */
export function isOwnPath(path: string): boolean {
  return IS_STAGED.test(path) || IS_SNAPSHOT.test(path)
}

function pathSchema(pattern: string) {
  return z.string().check(z.regex(exactly(pattern), { error: 'is not a path that such a change may touch' }))
}

function exactly(pattern: string): RegExp {
  return new RegExp(`^${pattern}$`, 'u')
}
