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
  rmSync,
  symlinkSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ActionResult, ActionRun } from '../../../local/runner.ts'
import { rewriteCopiedJournal } from './copied-journal.ts'

const PRELOADED = join(import.meta.dirname, 'copy-at-calls.mjs')

/** A host as a run left it that was killed at one call. */
export interface HostImage {
  readonly path: string
  /** The call at which the run was killed. */
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

/** Creates a host from an image. Its journal names the inodes and times of the copies. */
export function copyImage(image: HostImage, root: string): void {
  copyTree(image.path, root)
  const own = join(root, '.hub-deploy')
  for (const path of readdirSync(own, { recursive: true, encoding: 'utf8' }))
    if (/^staging\/[^/]+\/times-[^/]+$/.test(path)) rmSync(join(own, path))
  const journal = join(own, 'journal.jsonl')
  if (!existsSync(journal)) return
  rewriteCopiedJournal(journal, ino => join(root, image.inodes[ino] ?? 'gone'))
}

/** Copies like `cp -a`, but without a process: modes and hard links are kept. */
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

/** Creates a folder on a file system in memory if there is one. Its path is a `TMPDIR`. */
export function makeFastFolder(name: string): string {
  const memory = '/dev/shm'
  return mkdtempSync(join(existsSync(memory) ? memory : tmpdir(), `${name}-`))
}
