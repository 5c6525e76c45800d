import { DatabaseSync, type StatementSync } from 'node:sqlite'

/**
 * The hub has fewer fixed statements. The fleet page adds others, which depend on the number of words in its filter.
 */
const MOST_KEPT = 100

/** Keeps compiled statements, because compiling a short statement takes longer than running it. */
export class HubDatabase extends DatabaseSync {
  readonly #kept = new Map<string, StatementSync>()

  /** Returns the same statement for the same text, so read all its rows before you prepare that text again. */
  override prepare(sql: string): StatementSync {
    const kept = this.#kept.get(sql)
    if (kept !== undefined) return kept
    if (this.#kept.size === MOST_KEPT) this.#kept.clear()
    const statement = super.prepare(sql)
    this.#kept.set(sql, statement)
    return statement
  }
}
