import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { rewriteCopiedJournal } from './copied-journal.ts'

const PRELOADED = join(import.meta.dirname, 'copy-at-calls.mjs')

/** A copy of the host that a run leaves if the run is killed at one particular call. */
export interface HostImage {
  readonly path: string
  /** The call before which the copy was made. */
  readonly call: string
  /** The path of each inode at that moment. */
  readonly inodes: Readonly<Record<string, string>>
}

/** Runs an action without killing it, and takes an image of the host before each of its calls that change names. */
export async function takeImages(
  { root, folder }: { readonly root: string; readonly folder: string },
  run: (run: Partial<ActionRun>) => Promise<ActionResult>,
): Promise<{ images: readonly HostImage[]; result: ActionResult }> {
  mkdirSync(folder)
  const result = await run({ env: { ROOT: root, IMAGES: folder, NODE_OPTIONS: `--import=${PRELOADED}` } })
  const names = readdirSync(folder).filter(name => name.endsWith('.json'))
  const images = names.map(name => ({
    path: join(folder, name.slice(0, -'.json'.length)),
    ...JSON.parse(readFileSync(join(folder, name), 'utf8')),
  }))
  return { images, result }
}

/** Creates a host from an image. The host's journal contains the inodes and times of the copied files. */
export function copyImage(image: HostImage, root: string): void {
  copyTree(image.path, root)
  const journal = join(root, '.hub-deploy/journal.jsonl')
  if (!existsSync(journal)) return
  rewriteCopiedJournal(journal, ino => join(root, image.inodes[ino] ?? 'gone'))
}

/** Copies a tree without starting a process. Modes, symlinks and hard links are kept; times are not. */
function copyTree(from: string, to: string, copied = new Map<number, string>()): void {
  const stat = lstatSync(from)
  const known = stat.isFile() && stat.nlink > 1 ? copied.get(stat.ino) : undefined
  if (stat.isSymbolicLink()) symlinkSync(readlinkSync(from), to)
  else if (stat.isDirectory()) {
    mkdirSync(to)
    for (const name of readdirSync(from)) copyTree(join(from, name), join(to, name), copied)
    chmodSync(to, stat.mode)
  } else if (known !== undefined) linkSync(known, to)
  else copyFileSync(from, to)
  copied.set(stat.ino, to)
}

/** Creates a folder, on a file system in memory if this machine has one. The folder's path can serve as `TMPDIR`. */
export function makeFastFolder(name: string): string {
  const memory = '/dev/shm'
  return mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), `${name}-`))
}
