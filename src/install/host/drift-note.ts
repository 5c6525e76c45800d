import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { describeItemSync } from '../files/tree-scan.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import type { Place } from './layout.ts'
import { readStateFileSync } from './state-file.ts'
import type { TreeDifference } from './tree-comparison.ts'

const schema = z.lazy(() => z.array(z.tuple([z.string(), z.string()])))

/** What was different by then, and how, by path. */
export type DriftNote = ReadonlyMap<string, string>

/** Where it is noted how an installed tree differed: in the staging folder of the deployment that replaces it. */
export function driftNotePath(stagingFolder: string, { shelf, id }: Place): string {
  return join(stagingFolder, `drift-${shelf}-${id}.json`)
}

/**
 * Notes how the tree at `root` differed from its record before the deployment, so that a rollback distinguishes that
 * from damage. Not durable, because a rollback without it only verifies less. Nothing is noted where `drift` is not
 * known.
 */
export function noteDrift(
  stagingFolder: string,
  place: Place & { readonly root: string },
  drift: TreeDifference | undefined,
): void {
  const path = driftNotePath(stagingFolder, place)
  if (drift === undefined || pathExistsSync(path)) return
  const note = [...drift.added, ...drift.removed, ...drift.changed].map(different => [
    different,
    stateOf(place.root, different),
  ])
  writeFileSync(path, JSON.stringify(note), { flag: 'wx', mode: 0o600 })
}

/** The note; undefined when there is none, or a power cut has left none. */
export function readDriftNote(stagingFolder: string, place: Place): DriftNote | undefined {
  try {
    return new Map(schema.parse(JSON.parse(readStateFileSync(driftNotePath(stagingFolder, place)) ?? '')))
  } catch {
    return undefined
  }
}

/** Whether what is at a path is not what was noted, or was not different then. */
export function isDamaged(note: DriftNote, root: string, path: string): boolean {
  return note.get(path) !== stateOf(root, path)
}

function stateOf(root: string, path: string): string {
  const { kind, content, stamp } = describeItemSync(root, path) ?? { kind: 'none', content: '', stamp: '' }
  return [kind, content, stamp].join('\t')
}
