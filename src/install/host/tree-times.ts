import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { TimeSlice } from '../files/time-slice.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/tree-walk.ts'
import { findInstalled, readInstalled } from './installed.ts'
import { installPath, type Layout, type Place, treeRecordPath } from './layout.ts'
import { readStateFileSync } from './state-file.ts'

const schema = z.lazy(() => z.array(z.tuple([z.string(), z.number()])))

const pathsSchema = z.lazy(() => z.array(z.object({ path: z.string() })))
const recordSchema = z.lazy(() => z.object({ files: pathsSchema, symlinks: pathsSchema }))

/** Where the times of an installed tree are noted: in the staging folder of the deployment that replaces it. */
export function treeTimesPath(stagingFolder: string, { shelf, id }: Place): string {
  return join(stagingFolder, `times-${shelf}-${id}.json`)
}

/**
 * Notes when each recorded file of an installed tree was last changed, as the file system says: compared with itself
 * later, that needs no clock. A change by a write, chmod or rename of the file counts, the move of the tree does not.
 * Not durable, because a rollback without it only verifies less.
 */
export async function noteTreeTimes(layout: Layout, stagingFolder: string, place: Place): Promise<void> {
  const path = treeTimesPath(stagingFolder, place)
  const recorded = readRecordedPaths(layout, place)
  if (recorded === undefined || pathExistsSync(path)) return
  const [root, times] = [installPath(layout, place), [] as [string, number][]]
  await new TimeSlice().forEach(recorded, ({ path }) => {
    const time = changeTimeSync(`${root}/${path}`)
    if (time !== undefined) times.push([path, time])
  })
  writeFileSync(path, JSON.stringify(times), { flag: 'wx', mode: 0o600 })
}

/** The noted times by path; undefined when none were noted, or a power cut has left none. */
export function readTreeTimes(stagingFolder: string, place: Place): ReadonlyMap<string, number> | undefined {
  try {
    return new Map(schema.parse(JSON.parse(readStateFileSync(treeTimesPath(stagingFolder, place)) ?? '')))
  } catch {
    return undefined
  }
}

/**
 * The recorded paths of what is installed, or undefined. They are only asked for their times, so their record is not
 * checked as before a comparison, which takes ten times as long.
 */
function readRecordedPaths(layout: Layout, place: Place): readonly { path: string }[] | undefined {
  try {
    const digest = findInstalled(readInstalled(layout), place)?.tree_digest
    const text = digest ? readStateFileSync(treeRecordPath(layout, digest)) : undefined
    if (text === undefined) return undefined
    const { files, symlinks } = recordSchema.parse(JSON.parse(text))
    return [...files, ...symlinks]
  } catch {
    return undefined
  }
}

/** When a file was last changed, in milliseconds; undefined when it is not there. */
export function changeTimeSync(path: string): number | undefined {
  return lstatIfPresentSync(path)?.ctimeMs
}
