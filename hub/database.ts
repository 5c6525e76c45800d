import { DatabaseSync, type StatementSync } from 'node:sqlite'

/** More than the hub has; a page with a filter of many words makes its own. */
const MOST_KEPT = 100

/** Compiles each statement once: for short ones, that takes longer than what they do. */
export class HubDatabase extends DatabaseSync {
  readonly #kept = new Map<string, StatementSync>()

  /** The same statement for the same text: read its rows at once. */
  override prepare(sql: string): StatementSync {
    const kept = this.#kept.get(sql)
    if (kept !== undefined) return kept
    if (this.#kept.size === MOST_KEPT) this.#kept.clear()
    const statement = super.prepare(sql)
    this.#kept.set(sql, statement)
    return statement
  }
}
