import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import type { TestContext } from 'node:test'

interface Failing {
  code?: string
  /** How many of the calls fail, the first ones; default all. */
  times?: number
  /** True if only the creation of the file fails; as in the system, not if the file is there. */
  isCreation?: true
}

/** Until the test ends, attempts to open this path fail, as when the system lacks descriptors. */
export function failOpen(t: TestContext, path: string, failing: Failing = {}): void {
  failCalls(t, 'openSync', path, failing)
}

/** Until the test ends, calls of a function of `node:fs` whose first argument is this path fail. */
export function failCalls(
  t: TestContext,
  name: 'openSync' | 'renameSync' | 'lstatSync' | 'rmdirSync',
  path: string,
  { code = 'EMFILE', times = Number.POSITIVE_INFINITY, isCreation }: Failing = {},
): void {
  const calls = fs as unknown as Record<typeof name, (...args: unknown[]) => unknown>
  const call = calls[name]
  let left = times
  calls[name] = (first, ...more) => {
    const isMeant = String(first) === path && (!isCreation || (more[0] === 'wx' && !fs.existsSync(path)))
    if (!isMeant || left <= 0) return call(first, ...more)
    left--
    throw Object.assign(new Error(`${code}: ${path}`), { code, errno: -1, syscall: name.replace('Sync', ''), path })
  }
  syncBuiltinESMExports()
  t.after(() => {
    calls[name] = call
    syncBuiltinESMExports()
  })
}
