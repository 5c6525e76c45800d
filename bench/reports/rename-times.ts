import child from 'node:child_process'
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

// A preload for `node --import`. When the process exits, it writes two results to the file that RENAME_TIMES_FILE
// names: the synchronous renames of the process, with their times in milliseconds, and how often the process started
// `sync`.

const renames: { from: string; to: string; at: number }[] = []
let syncs = 0

const rename = fs.renameSync
fs.renameSync = (from, to) => {
  rename(from, to)
  renames.push({ from: String(from), to: String(to), at: performance.now() })
}
const spawn = child.spawn
child.spawn = ((...args: Parameters<typeof spawn>) => {
  if (args[0] === 'sync') syncs++
  return spawn(...args)
}) as typeof spawn
syncBuiltinESMExports()

process.once('exit', () => {
  const file = process.env['RENAME_TIMES_FILE']
  if (file !== undefined) fs.writeFileSync(file, JSON.stringify({ renames, syncs }))
})
