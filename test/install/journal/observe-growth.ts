import fs, { readlinkSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

/** Lets a journal grow, and prints which file is synced and renamed in which order. A test runs this in its own process. */
const { fsync, renameSync } = fs
const calls = fs as { -readonly [Name in 'fsync' | 'renameSync']: (...args: never[]) => void }
calls.fsync = (fd: number, done: fs.NoParamCallback) => {
  print('sync', readlinkSync(`/proc/self/fd/${fd}`))
  fsync(fd, done)
}
calls.renameSync = (from: string, to: string) => {
  print('rename', from)
  renameSync(from, to)
}
// The journal takes its functions when it is loaded.
syncBuiltinESMExports()
await import('./grow-journal.ts')

function print(what: string, path: string): void {
  console.log(`${what} ${path.endsWith('.tmp') ? 'the copy' : path}`)
}
