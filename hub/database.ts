import { DatabaseSync, type StatementSync } from 'node:sqlite'

/** More statements than the hub has, but a page with a filter of many words makes its own. */
const MOST_KEPT = 100

/** Compiles each statement once: compiling a short one takes longer than running it. */
export class HubDatabase extends DatabaseSync {
  readonly #kept = new Map<string, StatementSync>()

  /** Returns the same statement for the same text, so read its rows at once. */
  override prepare(sql: string): StatementSync {
    const kept = this.#kept.get(sql)
    if (kept !== undefined) return kept
    if (this.#kept.size === MOST_KEPT) this.#kept.clear()
    const statement = super.prepare(sql)
    this.#kept.set(sql, statement)
    return statement
  }
}
