// Preloaded into a rollback: runs the shell text in BEFORE_RESTORE right before a snapshot is moved to the staging
// folder.
import { execFileSync } from 'node:child_process'
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

const rename = fs.renameSync
let isDone = false
fs.renameSync = (from, to) => {
  // A path deep in the staging folder is reached through its open folder.
  if (!isDone && String(from).includes('/snapshots/') && /\/greeter$/.test(String(to))) {
    isDone = true
    execFileSync('/bin/sh', ['-ec', process.env.BEFORE_RESTORE])
  }
  rename(from, to)
}
syncBuiltinESMExports()
