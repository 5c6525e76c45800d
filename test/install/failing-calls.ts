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

const WATCHED = [
  ...['closeSync', 'fstatSync', 'linkSync', 'lstatSync', 'mkdirSync', 'openSync', 'readdirSync', 'renameSync'],
  ...['rmdirSync', 'statSync', 'unlinkSync', 'writeSync'],
]

/**
 * Until the test ends, watches synchronous file calls. The returned function begins with those in a folder, which it
 * adds to the list that it returns. If it is given a number, counted from 1, that call fails once.
 */
export function watchCalls(t: TestContext): (folder: string, failing?: number) => readonly string[] {
  const calls = fs as unknown as Record<string, (...args: unknown[]) => unknown>
  const originals = WATCHED.map(name => [name, calls[name] as (...args: unknown[]) => unknown] as const)
  const watches: { folder: string; failing: number | undefined; seen: string[] }[] = []
  for (const [name, call] of originals) {
    calls[name] = (first, ...more) => {
      const path = pathOf(first)
      const watch = watches.find(({ folder }) => path.startsWith(folder))
      const nth = watch?.seen.push(`${name} ${path.slice(watch.folder.length)}`)
      if (nth === undefined || nth !== watch?.failing) return call(first, ...more)
      // Even a failed close frees the descriptor.
      if (name === 'closeSync') call(first)
      throw Object.assign(new Error(`EIO: ${path}`), {
        code: 'EIO',
        errno: -5,
        syscall: name.replace('Sync', ''),
        path,
      })
    }
  }
  syncBuiltinESMExports()
  t.after(() => {
    for (const [name, call] of originals) calls[name] = call
    syncBuiltinESMExports()
  })
  return (folder, failing) => {
    const seen: string[] = []
    watches.push({ folder, failing, seen })
    return seen
  }
}

const { readlinkSync } = fs

/** The path of a call. A call names a descriptor, or a path in the folder of one. */
function pathOf(first: unknown): string {
  const path = typeof first === 'number' ? `/proc/self/fd/${first}` : String(first)
  const [, folder, name = ''] = /^(\/proc\/self\/fd\/\d+)(\/.*)?$/s.exec(path) ?? []
  return folder === undefined ? path : `${readlinkSync(folder)}${name}`
}
