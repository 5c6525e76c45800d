// Preloaded into an action: appends the target and the stack of each rename to the file STACKS, as one line of JSON.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

Error.stackTraceLimit = 100
const rename = fs.renameSync
fs.renameSync = (from, to) => {
  const { stack } = new Error()
  fs.appendFileSync(process.env.STACKS, `${JSON.stringify({ to: String(to), stack })}\n`)
  rename(from, to)
}
syncBuiltinESMExports()
