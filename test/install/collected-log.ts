import type { Log } from '../../src/core/log.ts'

export interface CollectedLog extends Log {
  /** Each line as `<level> <text>`. */
  readonly lines: string[]
}

/** A log that keeps its lines. */
export function collectLog(): CollectedLog {
  const lines: string[] = []
  const keep = (level: string) => (line: string) => void lines.push(`${level} ${line}`)
  const [group, did, info, notice, warning, error] = ['group', 'did', 'info', 'notice', 'warning', 'error'].map(keep)
  return { lines, group, did, end() {}, info, notice, warning, error } as CollectedLog
}
