// Preloaded into a rollback: runs the shell text in BEFORE_RESTORE once, right before the snapshot of greeter is moved
// to the staging folder.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const rename = fs.renameSync
let isDone = false
fs.renameSync = (from, to) => {
  // The target may be named through its open folder (/proc/self/fd), so only its last component is compared.
  if (!isDone && String(from).includes('/snapshots/') && /\/greeter$/.test(String(to))) {
    isDone = true
    execFileSync('/bin/sh', ['-ec', process.env.BEFORE_RESTORE])
  }
  rename(from, to)
}
syncBuiltinESMExports()
