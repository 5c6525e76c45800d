/** What the system says of a file: `/data/hub.sqlite: EACCES`. Undefined for an error that is not the system's. */
export function fileProblem(error: unknown, path: string): string | undefined {
  if (!(error instanceof Error)) return undefined
  const { errno, code, errcode, path: named = path } = error as NodeJS.ErrnoException & { errcode?: number }
  if (typeof errno === 'number') return `${named}: ${code}`
  // SQLite's own.
  return typeof errcode === 'number' ? `${named}: ${error.message}` : undefined
}
