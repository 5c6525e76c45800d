import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import type { TestContext } from 'node:test'

/** Until the test ends, the first `times` attempts to open this path fail, as when the system lacks descriptors. */
export function failOpen(
  t: TestContext,
  path: string,
  { code = 'EMFILE', times = Number.POSITIVE_INFINITY } = {},
): void {
  const open = fs.openSync
  let left = times
  fs.openSync = (opened, ...more) => {
    if (String(opened) !== path || left <= 0) return open(opened, ...more)
    left--
    throw Object.assign(new Error(`${code}: ${path}`), { code, errno: -1, syscall: 'open', path })
  }
  syncBuiltinESMExports()
  t.after(() => {
    fs.openSync = open
    syncBuiltinESMExports()
  })
}
