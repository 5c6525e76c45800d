// Preloaded into an action: sends SIGNAL to the action each time that it has opened a file whose path ends with
// AT_FILE.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const { SIGNAL, AT_FILE } = process.env
const open = fs.openSync
fs.openSync = (path, ...more) => {
  const fd = open(path, ...more)
  if (String(path).endsWith(AT_FILE)) process.kill(process.pid, SIGNAL)
  return fd
}
syncBuiltinESMExports()
