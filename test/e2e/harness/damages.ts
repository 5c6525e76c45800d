import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parseJournalText } from '../../../src/install/journal/line.ts'
import { journalText } from '../../install/journal/journal-text.ts'
import type { Random } from './random.ts'

const OF_SOMEBODY = 'of-somebody'

/** A state file or folder of a host, and a place outside the host. */
export interface Target {
  readonly path: string
  readonly outside: string
}

export type Damage = (target: Target, random: Random) => void

/** Damage that a dying disk, a power cut, a careless operator or another program can do to a state file. */
export const FILE_DAMAGES: Readonly<Record<string, Damage>> = {
  cut: rewrite((bytes, random) => bytes.subarray(0, random.below(bytes.length))),
  'cut after a line': rewrite((bytes, random) => {
    const ends = [...bytes.entries()].flatMap(([index, byte]) => (byte === 10 ? [index + 1] : []))
    return bytes.subarray(0, ends.length === 0 ? 0 : random.pick(ends))
  }),
  'with a tail of NUL bytes': rewrite((bytes, random) => {
    const start = random.below(bytes.length)
    return Buffer.concat([bytes.subarray(0, start), Buffer.alloc(bytes.length - start)])
  }),
  'with a head of NUL bytes': rewrite((bytes, random) => {
    const end = Math.min(bytes.length, random.pick([1, 512, 4096]))
    return Buffer.concat([Buffer.alloc(end), bytes.subarray(end)])
  }),
  'full of NUL bytes': rewrite(bytes => Buffer.alloc(bytes.length)),
  empty: rewrite(() => Buffer.alloc(0)),
  'with a flipped bit': rewrite((bytes, random) => {
    const flipped = Buffer.from(bytes)
    const used = Math.max(1, bytes.toString('latin1').trimEnd().length)
    const at = random.below(used)
    flipped[at] = (flipped[at] ?? 0) ^ (1 << random.below(8))
    return flipped
  }),
  'with a line twice': lines((all, at) => all.toSpliced(at, 0, all[at] ?? '')),
  'without a line': lines((all, at) => all.toSpliced(at, 1)),
  'with two lines swapped': lines((all, at) => all.toSpliced(at, 2, ...all.slice(at, at + 2).reverse())),
  'with garbage after it': rewrite(bytes => Buffer.concat([bytes, Buffer.from('{"garbage\n')])),
  'now a directory': ({ path }) => {
    rmSync(path)
    mkdirSync(path)
    writeFileSync(join(path, 'precious'), 'precious of the operator')
  },
  'now a symlink to its copy': ({ path, outside }) => {
    const copy = join(outside, `copy-of-${basename(path)}`)
    renameSync(path, copy)
    symlinkSync(copy, path)
  },
  'now a dangling symlink': ({ path, outside }) => {
    rmSync(path)
    symlinkSync(join(outside, 'nowhere'), path)
  },
  'now a pipe': ({ path }) => {
    rmSync(path)
    execFileSync('mkfifo', ['-m', '600', path])
  },
  'with two values swapped': values((leaves, random) => {
    const [one, other] = [random.pick(leaves), random.pick(leaves)]
    const value = one.get()
    one.set(other.get())
    other.set(value)
  }),
  'with a value that reaches out': values((leaves, random) => {
    const texts = leaves.filter(leaf => typeof leaf.get() === 'string')
    random.pick(texts.length === 0 ? leaves : texts).set(random.pick(OUTREACHING))
  }),
  'with another value': values((leaves, random) => random.pick(leaves).set(random.pick(ODD_VALUES))),
  'without a value': values((leaves, random) => random.pick(leaves).remove()),
}

/**
 * Damage to a folder of the action: another object takes the folder's place, and the folder itself is kept outside the
 * host; or the folder contains a foreign folder.
 */
export const FOLDER_DAMAGES: Readonly<Record<string, Damage>> = {
  'now a file': target => {
    moveOut(target)
    writeFileSync(target.path, 'precious of the operator', { mode: 0o600 })
  },
  'now a symlink to its copy': target => symlinkSync(moveOut(target), target.path),
  "with somebody else's folder in it": ({ path }) => {
    mkdirSync(join(path, OF_SOMEBODY))
    // Whatever is in the trash is removed.
    const text = basename(path) === 'trash' ? 'rubbish' : 'precious of the operator'
    writeFileSync(join(path, OF_SOMEBODY, 'precious'), text)
  },
}

/** Puts back a folder that the damage moved out, or moves out somebody else's folder. */
export function repairFolder({ path, outside }: Target): void {
  const kept = movedOut({ path, outside })
  const foreign = join(path, OF_SOMEBODY)
  if (!existsSync(kept)) return void (existsSync(foreign) && renameSync(foreign, join(outside, OF_SOMEBODY)))
  renameSync(path, join(outside, 'repaired'))
  renameSync(kept, path)
}

function moveOut(target: Target): string {
  const copy = movedOut(target)
  renameSync(target.path, copy)
  return copy
}

function movedOut({ path, outside }: Target): string {
  return join(outside, `moved-${basename(path)}`)
}

const OUTREACHING = [
  '',
  '.',
  '..',
  '../..',
  '../../outside',
  '../../../../../outside',
  '../../../../plugins',
  'plugins/neighbour',
  'neighbour',
  'plugins',
  '.hub-deploy',
  '.hub-deploy/snapshots',
  '.hub-deploy/snapshots/plugins/neighbour/1-1.0.0',
  '/',
  '/etc/hostname',
  'greeter/data',
  'a\u0000b',
  'x'.repeat(300),
  '__proto__',
]

const ODD_VALUES = [null, true, -1, 0, 1e300, [], {}, 'text', '7', '2.0.0', 'success', 'failed', 'greeter', 'service']

/** A value in a document that contains no further values: a primitive, or an empty object or array. */
interface Leaf {
  get(): unknown
  set(value: unknown): void
  remove(): void
}

function rewrite(change: (bytes: Buffer, random: Random) => Buffer): Damage {
  return ({ path }, random) => writeFileSync(path, change(readFileSync(path), random))
}

function lines(change: (lines: readonly string[], at: number) => readonly string[]): Damage {
  return rewrite((bytes, random) => {
    const all = bytes.toString('latin1').split('\n')
    return Buffer.from(change(all, random.below(Math.max(1, all.length - 1))).join('\n'), 'latin1')
  })
}

/**
 * Changes values. The checksums of a journal are recomputed, so only the values themselves show the change.
 */
function values(change: (leaves: readonly Leaf[], random: Random) => void): Damage {
  return rewrite((bytes, random) => {
    const isJournal = bytes.subarray(0, 7).toString() === '{"seq":'
    const text = bytes.toString('utf8')
    const document: unknown = isJournal ? parseJournalText(bytes).records : tryParse(text)
    const leaves = leavesOf(document)
    if (leaves.length === 0) return Buffer.from(`${text}?`)
    change(leaves, random)
    return Buffer.from(isJournal ? journalText(document as object[]) : JSON.stringify(document))
  })
}

function tryParse(text: string): unknown {
  const [line = ''] = text.split('\n')
  for (const candidate of [text, line]) {
    try {
      return JSON.parse(candidate)
    } catch {
      // This candidate is not JSON.
    }
  }
  return undefined
}

function leavesOf(value: unknown): Leaf[] {
  if (typeof value !== 'object' || value === null) return []
  const holder = value as Record<string, unknown>
  return Object.keys(holder).flatMap(key => {
    const inner = holder[key]
    if (typeof inner === 'object' && inner !== null && Object.keys(inner).length > 0) return leavesOf(inner)
    const leaf: Leaf = {
      get: () => holder[key],
      set(next) {
        holder[key] = next
      },
      remove() {
        if (Array.isArray(holder)) holder.splice(Number(key), 1)
        else delete holder[key]
      },
    }
    return [leaf]
  })
}
