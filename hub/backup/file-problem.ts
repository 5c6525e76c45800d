/** SQLite's codes for errors that are not the database's fault: READONLY, IOERR, FULL, CANTOPEN. */
const OF_THE_SYSTEM = new Set([8, 10, 13, 14])
const PRIMARY_CODE = 0xff

/** Names a file and the system's error: `/data/hub.sqlite: EACCES`. Undefined for an error that is not the system's. */
export function fileProblem(error: unknown, path: string): string | undefined {
  if (!(error instanceof Error)) return undefined
  const { errno, code, errcode, path: named = path } = error as NodeJS.ErrnoException & { errcode?: number }
  if (typeof errno === 'number') return `${named}: ${code}`
  const isSystems = typeof errcode === 'number' && OF_THE_SYSTEM.has(errcode & PRIMARY_CODE)
  return isSystems ? `${named}: ${error.message}` : undefined
}
