import { execFileSync } from 'node:child_process'

const REWRITE =
  'time=$(mktemp) && touch -r "$1" "$time" && printf %s "$2" > "$1" && touch -r "$time" "$1" && rm "$time"'

/** Replaces the text of a file, and gives the file its old modification time, to the nanosecond. */
export function rewriteKeepingTime(path: string, text: string): void {
  execFileSync('sh', ['-c', REWRITE, 'sh', path, text])
}
