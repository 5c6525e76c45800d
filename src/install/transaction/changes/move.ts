import { lstatSync, renameSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../../core/errors.ts'
import { isAbsent } from '../../files/trees/tree-walk.ts'
import { isMove, isOwnPath, isPlacePath, movablePathSchema } from './change-paths.ts'
import { type Ends, type HeldEnds, type HeldPath, holdEnds, inodeOf, namedAfter, withEnds } from './held-path.ts'
import { putAside, remakeFolders } from './set-aside.ts'

/** The wait after attempt n is n milliseconds. */
export const MAX_ATTEMPTS = 20

export const moveSchema = z
  .object({
    type: z.literal('move'),
    from: movablePathSchema,
    to: movablePathSchema,
    /** The inode of the moved file or tree, which distinguishes it from anything else at either path. */
    ino: z.string().check(z.regex(/^[0-9]{1,20}$/)),
    /**
     * The times of modification and creation, in nanoseconds; needed because some file systems renumber inodes at each
     * mount.
     */
    times: z.exactOptional(z.string().check(z.regex(/^-?[0-9]{1,20} -?[0-9]{1,20}$/))),
  })
  .check(z.refine(isMove, { error: 'is not a move that a deployment makes' }))
export type Move = z.infer<typeof moveSchema>
export type PlannedMove = Omit<Move, 'ino' | 'times'>
export type Identity = Required<Pick<Move, 'ino' | 'times'>>

/**
 * Identifies the file or tree to be moved; waits while another process is replacing it. Throws DeploymentError
 * `step_failed` if the source is missing, and as `requireFree` does.
 */
export async function identify(root: string, move: PlannedMove): Promise<Identity> {
  requireFree(root, move)
  for (let attempt = 1; ; attempt++) {
    const identity = withEnds(root, move, ({ from }) => identityOf(from))
    if (identity !== null) return identity
    if (attempt === MAX_ATTEMPTS) throw justDisappeared(move.from)
    await setTimeout(attempt)
  }
}

/**
 * Throws DeploymentError `step_failed` if the target of a move is taken, unless the move installs a tree: in that case,
 * `makeMove` sets aside anything in the place.
 */
export function requireFree(root: string, move: PlannedMove): void {
  const isTree = isPlacePath(move.to) && isOwnPath(move.from)
  if (isTree || withEnds(root, move, ({ to }) => inodeOf(to)) === null) return
  throw justAppeared(move.to)
}

/**
 * A move that was made. The move is durable once its two folders are synced. The folders stay open until `ends` is
 * closed.
 */
export interface MadeMove {
  readonly ends: HeldEnds
  /** The paths to which files that were in the way were moved. */
  readonly setAside: readonly string[]
}

/**
 * Makes a move. Another process, perhaps the old version itself, may replace the source, or put files in the way each
 * time files are set aside. The two renames therefore follow each other immediately, and are attempted up to 20 times.
 * Throws DeploymentError `step_failed` if the source is missing after the last attempt, and otherwise the system's
 * error.
 */
export async function makeMove(root: string, paths: Ends<string>): Promise<MadeMove> {
  const setAside: string[] = []
  for (let attempt = 1; ; attempt++) {
    const ends = holdEnds(root, paths)
    try {
      if (attempt === MAX_ATTEMPTS - 1 && ends.to.folder === '') setAside.push(...(await remakeFolders(root, paths.to)))
      else if (ends.to.folder !== '' && inodeOf(ends.to) !== null) setAside.push(...(await putAside(root, ends.to)))
      renameSync(ends.from.at, ends.to.at)
      return { ends, setAside }
    } catch (error) {
      const isFinal = attempt === MAX_ATTEMPTS || !isInTheWay(error)
      const reason = isFinal && inodeOf(ends.from) === null ? justDisappeared(paths.from) : namedAfter(ends, error)
      ends.close()
      if (isFinal) throw reason
      await setTimeout(attempt)
    }
  }
}

function isInTheWay(error: unknown): boolean {
  return ['ENOTEMPTY', 'EEXIST', 'ENOTDIR', 'EISDIR', 'ENOENT'].includes(errnoOf(error) ?? '')
}

/** Returns the identity of the file or tree at a path, or null if nothing is there. */
export function identityOf({ at }: HeldPath): Identity | null {
  try {
    const { ino, mtimeNs, birthtimeNs } = lstatSync(at, { bigint: true })
    return { ino: String(ino), times: `${mtimeNs} ${birthtimeNs}` }
  } catch (error) {
    if (isAbsent(error)) return null
    throw error
  }
}

export function justAppeared(path: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `${path} has just appeared: another process is writing in its directory. Stop that process and run again.`,
  )
}

function justDisappeared(path: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `${path} has just disappeared: another process is working in its directory. Stop that process and run again.`,
  )
}
