import { setTimeout } from 'node:timers/promises'
import { monotonicMs } from '../../../core/monotonic.ts'
import { FileDigester } from '../../files/file-digester.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import { describeItemSync } from '../../files/trees/tree-item.ts'
import { stateText, type TreeBefore } from './drift-note.ts'
import { isAsRecorded } from './tree-comparison.ts'

/** After attempt n, the wait is n milliseconds: 0.1 s in total. */
const MAX_ATTEMPTS = 14
/** The limit for all attempts, in milliseconds: each attempt may examine many files. */
const MAX_MS = 1000

/**
 * Examines the damaged paths again, and returns those at which the old file is found after all. In that case, another
 * process is renaming the file, or a directory that contains it, back and forth. Never throws; once the signal is
 * aborted, examines nothing more.
 */
export async function findMoving(
  before: TreeBefore,
  damaged: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlySet<string>> {
  const slice = new TimeSlice()
  const digester = new FileDigester()
  const moving = new Set<string>()
  const endsAt = monotonicMs() + MAX_MS
  const hasTime = (): boolean => !signal.aborted && monotonicMs() < endsAt
  for (let attempt = 1; attempt <= MAX_ATTEMPTS && moving.size < damaged.length && hasTime(); attempt++) {
    for (const path of damaged) {
      if (slice.isOver()) await slice.giveBack()
      if (!hasTime()) break
      if (!moving.has(path) && (await isAsBefore(before, path, digester))) moving.add(path)
    }
    await setTimeout(attempt)
  }
  return moving
}

async function isAsBefore(
  { root, note, recorded, isAfterCrash }: TreeBefore,
  path: string,
  digester: FileDigester,
): Promise<boolean> {
  try {
    const found = describeItemSync(root, path)
    const noted = note.states.get(path)
    if (noted !== undefined) return noted === stateText(found)
    const item = recorded(path)
    if (item === undefined || found === undefined) return false
    return await isAsRecorded(isAfterCrash ? { ...item, stamp: undefined } : item, found, { root, digester })
  } catch {
    return false
  }
}
