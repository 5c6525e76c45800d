import { isBelow } from '../../../core/is-below.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import { scanTree } from '../../files/trees/tree-scan.ts'
import type { HostTree } from '../keep-paths.ts'
import type { RecordedItem } from './record/recorded-item.ts'
import { isCache, pairUp } from './tree-comparison.ts'

/** The maximum number of paths. There is a limit, because each path is moved separately. */
const MAX_STRAYS = 2000

/**
 * Returns the relative paths of the unrecorded files in the bytecode caches of a tree, without keep-paths. For a cache
 * that is entirely unrecorded, returns only the path of the cache. A process that could write to the tree may have put
 * code in these files. Returns undefined if there are more than 2,000 paths. Throws the system's error, and the
 * signal's reason once the signal is aborted.
 */
export async function findStrayCaches(
  { root, keepPaths }: HostTree,
  record: readonly RecordedItem[],
  signal?: AbortSignal,
): Promise<string[] | undefined> {
  const slice = new TimeSlice(signal)
  const known = new Set([...record.map(({ path }) => path), ...keepPaths].filter(isCache).map(cacheOf))
  const strays = new Set<string>()
  for (const { recorded, found } of pairUp(record, scanTree(root, { isLeftOut: isBelow(keepPaths) }))) {
    if (slice.isOver()) await slice.giveBack()
    if (recorded !== undefined || found === undefined || !isCache(found.path)) continue
    const cache = cacheOf(found.path)
    strays.add(known.has(cache) ? found.path : cache)
    if (strays.size > MAX_STRAYS) return undefined
  }
  return [...strays]
}

/** Returns the outermost cache that contains the path. */
function cacheOf(path: string): string {
  return path.replace(/(?<=^|\/)__pycache__\/.*$/su, '__pycache__')
}
