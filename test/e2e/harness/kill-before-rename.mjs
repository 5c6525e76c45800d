// Preloaded into an action: kills the action right before the action renames a file to the path KILL_BEFORE, or a file
// whose name begins with KILL_FROM.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { basename } from 'node:path'

const { KILL_BEFORE, KILL_FROM } = process.env
const rename = fs.renameSync
fs.renameSync = (from, to) => {
  if (String(to) === KILL_BEFORE || (KILL_FROM && basename(String(from)).startsWith(KILL_FROM)))
    process.kill(process.pid, 'SIGKILL')
  rename(from, to)
}
syncBuiltinESMExports()
