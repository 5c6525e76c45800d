/** Reports the progress of a flow. The runner's log implements it; tests collect lines. */
export interface Log {
  /**
   * Opens a group of lines and closes the previous group. With `at once`, lines appear as they are written. Use it for
   * a group in which the run changes the host.
   */
  group(title: string, shown?: 'at once'): void
  /**
   * Says what the open group has done, so that a folded log shows it too. May be called several times. A log that folds
   * ignores the call while no group is open, so `result` must not be the only place for a fact that a reader needs.
   */
  did(result: string): void
  /** Closes the open group, if there is one. */
  end(): void
  info(line: string): void
  /** For a line that deserves attention, although nothing is wrong. */
  notice(line: string): void
  /** For a failure that does not change the outcome. */
  warning(line: string): void
  /** For a problem that somebody has to fix, even if the outcome does not show it. */
  error(line: string): void
}
