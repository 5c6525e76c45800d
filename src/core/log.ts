/** Where a flow reports its progress. The runner's log implements it; tests collect lines. */
export interface Log {
  /** Opens a group of lines; the next one closes it. Where the host is changed, its lines must show at once. */
  group(title: string, shown?: 'at once'): void
  /**
   * What the open group has done, so that a folded log says it too. May be called several times. Where no group is open,
   * nothing is folded: a log that folds ignores it, so it never says alone what a reader must know.
   */
  did(what: string): void
  /** Closes the open group, if there is one. */
  end(): void
  info(line: string): void
  /** Worth attention, but nothing is wrong. */
  notice(line: string): void
  /** Something went wrong that does not change the outcome. */
  warning(line: string): void
  /** Something is wrong that somebody has to repair, although the outcome is another. */
  error(line: string): void
}
