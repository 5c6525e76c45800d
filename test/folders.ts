import { execFileSync } from 'node:child_process'
import {
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { TestContext } from 'node:test'

/** A directory that is removed when the test ends. */
export function temporaryDirectory(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'hub-deploy-test-'))
  t.after(() => rmSync(path, { recursive: true, force: true }))
  return path
}

/** Writes these files, whose paths are relative to `root`, and creates their directories. */
export function writeTree(root: string, files: Readonly<Record<string, string>>): void {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
}

/** Maps each path below a directory to `<mode> <content>`, `<mode> directory`, `<mode> special` or `-> <target>`. */
export function listTree(root: string, below = ''): Record<string, string> {
  const listing: Record<string, string> = {}
  for (const name of readdirSync(join(root, below))) {
    const path = join(below, name)
    listing[path] = describePath(join(root, path))
    if (listing[path].endsWith(' directory')) Object.assign(listing, listTree(root, path))
  }
  return listing
}

function describePath(path: string): string {
  const stat = lstatSync(path)
  if (stat.isSymbolicLink()) return `-> ${readlinkSync(path)}`
  const mode = (stat.mode & 0o7777).toString(8)
  if (stat.isDirectory()) return `${mode} directory`
  return stat.isFile() ? `${mode} ${readFileSync(path, 'latin1')}` : `${mode} special`
}

/** True if this process, in which the hub of a test also runs, has the file open. */
export function isOpen(path: string): boolean {
  const real = realpathSync(path)
  return readdirSync('/proc/self/fd').some(fd => targetOf(fd) === real)
}

function targetOf(fd: string): string | undefined {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`)
  } catch {
    // The folder was listed through this descriptor, which is closed by now.
    return undefined
  }
}

const REWRITE =
  'time=$(mktemp) && touch -r "$1" "$time" && printf %s "$2" > "$1" && touch -r "$time" "$1" && rm "$time"'

/** Replaces the text of a file, and gives the file its old modification time, to the nanosecond. */
export function rewriteKeepingTime(path: string, text: string): void {
  execFileSync('sh', ['-c', REWRITE, 'sh', path, text])
}

/**
 * The stamps of a path and of everything below it: inode, links, owner, mode, size and times. Any change alters at
 * least one of these values.
 */
export function stampsOf(root: string): Record<string, string> {
  const below = readdirSync(root, { recursive: true, encoding: 'utf8' })
  return Object.fromEntries(['.', ...below].toSorted().map(path => [path, stampOf(join(root, path))]))
}

function stampOf(path: string): string {
  const { ino, nlink, uid, gid, mode, size, mtimeNs, ctimeNs } = lstatSync(path, { bigint: true })
  return [ino, nlink, uid, gid, mode, size, mtimeNs, ctimeNs].join(' ')
}

const NOBODY = 65_534

/** Does some work without root's rights, even if the tests run as root. */
export async function withoutRoot(work: () => Promise<void>): Promise<void> {
  const user = process.geteuid?.() ?? NOBODY
  if (user === 0) process.seteuid?.(NOBODY)
  try {
    await work()
  } finally {
    if (user === 0) process.seteuid?.(user)
  }
}

/** Creates a cache, `base`, in a new folder. Only this process's user may use the folder `own` in the cache. */
export function ownCache(t: TestContext): { folder: string; base: string; own: string } {
  const folder = temporaryDirectory(t)
  const base = join(folder, '.cache')
  const own = join(base, 'hub-deploy')
  mkdirSync(base, { mode: 0o755 })
  mkdirSync(own, { mode: 0o700 })
  return { folder, base, own }
}
