import { lstatSync, readdirSync } from 'node:fs'
import { PackedTexts } from '../../../core/columns/packed-texts.ts'
import { isBelow } from '../../../core/is-below.ts'
import { TimeSlice } from '../../files/time-slice.ts'
import { stampOf } from '../../files/trees/tree-item.ts'
import type { HostTree } from '../keep-paths.ts'

/**
 * The stamps of everything in a tree when it was scanned. They show later, without the tree's record, whether the tree
 * has changed.
 */
export class TreeStamps {
  /** Paths, each followed by its stamp. */
  readonly #seen = new PackedTexts()
  #inRoot = 0

  /** For a directory, `stamp` must be from before the directory was listed. */
  see(path: string, stamp: string): void {
    this.#seen.add(path)
    this.#seen.add(stamp)
    if (!path.includes('/')) this.#inRoot += 1
  }

  /**
   * True if nothing in this tree has changed since the scan. Ignores the stamp of the root, because the tree may have
   * been moved, but compares the number of entries in the root. A directory counts as changed if a kept path was moved
   * out of it. Throws the signal's reason once the signal is aborted.
   */
  async areThoseOf({ root, keepPaths }: HostTree, signal: AbortSignal): Promise<boolean> {
    const slice = new TimeSlice(signal)
    try {
      if (!lstatSync(root).isDirectory()) return false
      const isKept = isBelow(keepPaths)
      if (readdirSync(root).filter(name => !isKept(name)).length !== this.#inRoot) return false
      for (let at = 0; at < this.#seen.length; at += 2) {
        const [path, stamp] = [this.#seen.at(at), this.#seen.at(at + 1)]
        if (slice.isOver()) await slice.giveBack()
        if (stampOf(lstatSync(`${root}/${path}`, { bigint: true })) !== stamp) return false
      }
      return true
    } catch {
      signal.throwIfAborted()
      return false
    }
  }
}
