import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { TimeSlice } from '../files/time-slice.ts'
import { describeItemSync } from '../files/tree-scan.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { isModified } from './drift-check.ts'
import type { Place } from './layout.ts'
import { readStateFileSync } from './state-file.ts'
import type { TreeDifference } from './tree-comparison.ts'

const schema = z.lazy(() => z.object({ modified: z.boolean(), states: z.array(z.tuple([z.string(), z.string()])) }))

/** How a tree was before the deployment. */
export interface DriftNote {
  /** Whether it differed from its record at all. */
  readonly modified: boolean
  /** What was at each recorded path that differed. */
  readonly states: ReadonlyMap<string, string>
}

/** A place, with the absolute path of what is in it. */
type PlacedTree = Place & { readonly root: string }

/** Where it is noted how an installed tree differed: in the staging folder of the deployment that replaces it. */
export function driftNotePath(stagingFolder: string, { shelf, id }: Place): string {
  return join(stagingFolder, `drift-${shelf}-${id}.json`)
}

/**
 * Notes how a tree differed from its record before the deployment, so that a rollback distinguishes that from damage.
 * Not durable, because a rollback without it only verifies less.
 */
export async function noteDrift(stagingFolder: string, tree: PlacedTree, drift: TreeDifference): Promise<void> {
  const path = driftNotePath(stagingFolder, tree)
  if (pathExistsSync(path)) return
  const states: [string, string][] = []
  await new TimeSlice().forEach([...drift.removed, ...drift.changed], different => {
    states.push([different, drift.instead ?? stateOf(tree.root, different)])
  })
  writeFileSync(path, JSON.stringify({ modified: isModified(drift), states }), { flag: 'wx', mode: 0o600 })
}

/** The note; undefined when there is none, or a power cut has left none. */
export function readDriftNote(stagingFolder: string, place: Place): DriftNote | undefined {
  try {
    const note = schema.parse(JSON.parse(readStateFileSync(driftNotePath(stagingFolder, place)) ?? ''))
    return { ...note, states: new Map(note.states) }
  } catch {
    return undefined
  }
}

/** The recorded paths that differ now, and did not differ, or not in this way, when the note was made. */
export async function findDamaged(note: DriftNote, root: string, now: TreeDifference): Promise<string[]> {
  const damaged: string[] = []
  await new TimeSlice().forEach([...now.removed, ...now.changed], path => {
    if (note.states.get(path) !== (now.instead ?? stateOf(root, path))) damaged.push(path)
  })
  return damaged
}

function stateOf(root: string, path: string): string {
  const { kind, content, stamp } = describeItemSync(root, path) ?? { kind: 'none', content: '', stamp: '' }
  return [kind, content, stamp].join('\t')
}
