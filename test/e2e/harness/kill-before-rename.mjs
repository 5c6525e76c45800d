// Preloaded into an action: kills the action right before the action renames a file to the path KILL_BEFORE.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const rename = fs.renameSync
fs.renameSync = (from, to) => {
  if (String(to) === process.env.KILL_BEFORE) process.kill(process.pid, 'SIGKILL')
  rename(from, to)
}
syncBuiltinESMExports()
