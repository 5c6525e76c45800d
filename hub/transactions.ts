import type { DatabaseSync } from 'node:sqlite'

/** The event loop accepts one connection per turn, so a group of requests takes several turns to arrive. */
const COLLECTING_MS = 5

/**
 * Takes the write lock, runs the work, and commits. Throws, and writes nothing, if the work throws or returns a
 * promise, because a promise would continue outside the transaction. May be nested.
 */
export function inTransaction<T>({ db }: { readonly db: DatabaseSync }, work: () => T): T {
  const [begin, commit, rollBack] = db.isTransaction ? NESTED : OUTERMOST
  db.exec(begin)
  try {
    const result = work()
    refusePromise(result)
    db.exec(commit)
    return result
  } catch (error) {
    // SQLite itself has rolled back after some errors, such as a full disk.
    if (db.isTransaction) db.exec(rollBack)
    throw error
  }
}

const OUTERMOST = ['BEGIN IMMEDIATE', 'COMMIT', 'ROLLBACK'] as const
const NESTED = ['SAVEPOINT work', 'RELEASE work', 'ROLLBACK TO work; RELEASE work'] as const

function refusePromise(result: unknown): void {
  const { then } = Object(result) as { readonly then?: unknown }
  if (typeof then === 'function') throw new TypeError('The work of a transaction must not be asynchronous.')
}

/** Combines the writes of several requests in one transaction, because each transaction waits for the disk. */
export class SharedTransactions {
  readonly #db: DatabaseSync
  #waiting: Waiting[] = []

  constructor(db: DatabaseSync) {
    this.#db = db
  }

  /**
   * Resolves when the work's writes are on the disk. If the work throws, rejects with the same error, and none of the
   * work's writes remain. The work runs once more, alone, if its writes were rolled back together with those of other
   * work. Also rejects if the write lock stays taken for too long.
   */
  async run<T>(work: () => T): Promise<T> {
    return await new Promise<T>((resolve, reject) => {
      const attempt = () => {
        const result = inTransaction({ db: this.#db }, work)
        return () => resolve(result)
      }
      if (this.#waiting.push({ attempt, reject }) === 1) setTimeout(() => this.#writeAll(), COLLECTING_MS)
    })
  }

  #writeAll(): void {
    const all = this.#waiting
    this.#waiting = []
    let isBegun = false
    try {
      const settled = inTransaction({ db: this.#db }, () => {
        isBegun = true
        return all.map(waiting => this.#settle(waiting))
      })
      for (const answer of settled) answer()
    } catch (error) {
      // If the group never got the lock, each piece of work would wait for it just as long.
      if (!isBegun || all.length === 1) for (const { reject } of all) reject(error)
      else for (const waiting of all) writeAlone(waiting)
    }
  }

  #settle({ attempt, reject }: Waiting): () => void {
    try {
      return attempt()
    } catch (error) {
      if (!this.#db.isTransaction) throw error
      return () => reject(error)
    }
  }
}

/** Used after a rollback of the whole group. A statement of other work or a full disk can cause such a rollback. */
function writeAlone({ attempt, reject }: Waiting): void {
  try {
    attempt()()
  } catch (error) {
    reject(error)
  }
}

interface Waiting {
  /** Does the work. Returns a function that answers the request; call it once the work's writes are on the disk. */
  readonly attempt: () => () => void
  readonly reject: (error: unknown) => void
}
