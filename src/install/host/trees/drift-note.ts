import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod/mini'
import { TimeSlice } from '../../files/time-slice.ts'
import { describeItemSync, type FoundItem, type TreeItem } from '../../files/trees/tree-item.ts'
import type { PartName } from '../layout.ts'
import { readStateFileSync } from '../state-file.ts'
import { isModified } from './drift-check.ts'
import type { FindRecorded } from './record/read-tree-record.ts'
import type { TreeDifference } from './tree-comparison.ts'

const schema = z.lazy(() => z.object({ modified: z.boolean(), states: z.array(z.tuple([z.string(), z.string()])) }))

type State = TreeItem & { readonly stamp: string | undefined }

const NOTHING = { path: '', kind: 'none', content: '', stamp: '' }

/** The state of a tree before the deployment. */
export interface DriftNote {
  /** Whether the tree differed from its record. */
  readonly modified: boolean
  /** The state of each recorded path that differed. */
  readonly states: ReadonlyMap<string, string>
}

/** A part, with the absolute path of its tree. */
type PlacedTree = PartName & { readonly root: string }

/** The path of the note about an installed tree: in the staging folder of the deployment that replaces the tree. */
export function driftNotePath(stagingFolder: string, { shelf, id }: PartName): string {
  return join(stagingFolder, `drift-${shelf}-${id}.json`)
}

/**
 * Notes the differences that exist between a tree and its record before the deployment, so that a rollback can
 * distinguish them from damage. Replaces an earlier note about the tree. The note is not durable: without it, a
 * rollback can only verify less.
 */
export async function noteDrift(stagingFolder: string, tree: PlacedTree, drift: TreeDifference): Promise<void> {
  const path = driftNotePath(stagingFolder, tree)
  const states: [string, string][] = []
  await new TimeSlice().forEach([...drift.removed, ...drift.changed], different => {
    states.push([different, drift.instead ?? stateOf(tree.root, different)])
  })
  writeFileSync(path, JSON.stringify({ modified: isModified(drift), states }), { mode: 0o600 })
}

/** Returns the note; undefined if there is none that can be read, for example after a power cut. */
export function readDriftNote(stagingFolder: string, part: PartName): DriftNote | undefined {
  try {
    const note = schema.parse(JSON.parse(readStateFileSync(driftNotePath(stagingFolder, part)) ?? ''))
    return { ...note, states: new Map(note.states) }
  } catch {
    return undefined
  }
}

/** The facts about a tree from before the deployment that was rolled back. */
export interface TreeBefore {
  readonly root: string
  readonly note: DriftNote
  readonly recorded: FindRecorded
  /** Whether the run crashed: a power cut can leave a file empty if its bytes had not reached the disk. */
  readonly isAfterCrash: boolean
}

/** The recorded paths that differ now but did not differ in the same way when the note was made. */
export interface LaterDifference {
  /**
   * Missing, no longer files, empty after a crash, or different without a sign of a write: the disk or a deployment may
   * have damaged them.
   */
  readonly damaged: readonly string[]
  /** Files that another process has since written or replaced, as their inodes or times show. */
  readonly written: readonly string[]
}

export async function findLater(before: TreeBefore, now: TreeDifference): Promise<LaterDifference> {
  const later = { damaged: [] as string[], written: [] as string[] }
  await new TimeSlice().forEach([...now.removed, ...now.changed], path => {
    const item = now.instead === undefined ? describeItemSync(before.root, path) : undefined
    const noted = before.note.states.get(path)
    if (noted === (now.instead ?? stateText(item))) return
    const isWritten = isWrittenSince(noted ?? stateText(before.recorded(path)), item, before.isAfterCrash)
    later[isWritten ? 'written' : 'damaged'].push(path)
  })
  return later
}

/**
 * A write changes the stamp even if the clock was set back; only a write in the same tick of the clock goes unnoticed.
 */
function isWrittenSince(before: string, item: FoundItem | undefined, isAfterCrash: boolean): boolean {
  if (item === undefined || item.kind === 'link' || item.kind === 'other') return false
  const [, size, ...stamp] = before.split('\t')
  const isLost = isAfterCrash && item.content === '0' && size !== '0'
  return !isLost && stamp.join('\t') !== item.stamp
}

function stateOf(root: string, path: string): string {
  return stateText(describeItemSync(root, path))
}

/** Returns a text that is different for each state of a path. */
export function stateText({ kind, content, stamp = '' }: State = NOTHING): string {
  return [kind, content, stamp].join('\t')
}
