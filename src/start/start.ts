import { hash } from 'node:crypto'
import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statfsSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, isAbsolute, join } from 'node:path'
import { Script } from 'node:vm'
import { ownerOfTemporary, temporaryName } from '../install/files/durable.ts'
import { decidersOf, findExposureOf, isOpenToOthers } from '../install/host/permissions.ts'

/**
 * V8 drops compiled code that several full garbage collections have found unused. A run that has used less processor
 * time than this, in microseconds, has not had that many collections.
 */
const MAX_PROCESSOR_TIME = 1_000_000

/**
 * Runs an action of the bundle in `folder`. Uses the code that earlier runs compiled, if that code can be trusted.
 * After a run that changed the host, the code that the run needed is kept for later runs.
 */
export function start(folder: string, action: string): Promise<void> {
  const release = holdCancel()
  const compiled = new CompiledCode(cacheFolder(process.env))
  const { exports, compile } = loadBundle(join(folder, 'index.js'), compiled)
  const run = exports[action]
  if (run === undefined) throw new Error(`The bundle has no action ${action}.`)
  const ended = run(kind => compiled.keep(isShort() ? `${action}: ${kind}` : undefined, compile))
  release()
  return ended
}

/**
 * Makes sure that the action sees a cancel that arrives while the bundle is loaded. The signal waits until the event
 * loop turns, and the action begins to listen before its first `await`. Without a listener, the signal would end the
 * process without a result.
 */
function holdCancel(): () => void {
  const hold = (): void => {}
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, hold)
  return () => {
    for (const signal of ['SIGINT', 'SIGTERM']) process.off(signal, hold)
  }
}

function isShort(): boolean {
  const { user, system } = process.cpuUsage()
  return user + system < MAX_PROCESSOR_TIME
}

/** An action that the bundle exports. After a run that changed the host, it calls `onInstalled` with the run's kind. */
type ActionProgram = (onInstalled: (run: string) => void) => Promise<void>

interface Bundle {
  readonly exports: Readonly<Record<string, ActionProgram | undefined>>
  /** Returns all code of the bundle that has been compiled so far, by this run or by the runs whose code it loaded. */
  compile(): Buffer
}

/**
 * Loads the bundle, whose text is a function in ASCII that can load only modules of Node.js. Node.js compiles what the
 * kept code lacks. If that code was compiled by another version or with other options, Node.js compiles everything.
 */
export function loadBundle(file: string, compiled: CompiledCode): Bundle {
  const bytes = readFileSync(file)
  const cachedData = compiled.read(bytes)
  const script = new Script(bytes.toString('latin1'), { filename: file, ...(cachedData && { cachedData }) })
  if (script.cachedDataRejected === true) compiled.discard()
  const module = { exports: {} }
  script.runInThisContext()(module, module.exports, process.getBuiltinModule, dirname(file))
  return { exports: module.exports, compile: () => script.createCachedData() }
}

/**
 * Returns this action's folder in the user's cache, whose data can be lost (XDG Base Directory Specification). The
 * folder may not exist yet. Returns undefined if the environment names no absolute path. By default, the folder is not
 * in a project root: a service that may write only there, but runs as the same user, must not be able to replace this
 * action's compiled code.
 */
export function cacheFolder({ XDG_CACHE_HOME, HOME }: NodeJS.ProcessEnv): string | undefined {
  const bases = [XDG_CACHE_HOME ?? '', join(HOME ?? '', '.cache')]
  const base = bases.find(isAbsolute)
  return base && join(base, 'hub-deploy')
}

const NAME = 'compiled'
/**
 * The bytes before the code: a digest and the list of runs. Their total size must be a multiple of 8 so that V8 can use
 * the code in place.
 */
const DIGEST_BYTES = 32
const RUNS_BYTES = 96
const HEADER_BYTES = DIGEST_BYTES + RUNS_BYTES
/** Ten times the code that a complete deployment compiles. */
const MAX_BYTES = 16 * 1024 * 1024

/**
 * The bundle's code as Node.js has compiled it, in one file of this user's cache. A process that can write that file
 * decides what runs, so the file is read and written only in a folder that only this user and root can change. Never
 * throws: without the file, a run merely takes longer.
 *
 * Different runs need different functions. For example, an update also compares and moves the old tree. The file
 * therefore lists the kinds of runs that have contributed to its code, and the first run of another kind adds the
 * functions that it has compiled.
 *
 * The file is not synced. Its digest exposes a torn file, and a file for another bundle or another Node.js. The next
 * run that keeps its code replaces such a file.
 */
export class CompiledCode {
  readonly #folder: string | undefined
  /** The Node.js version, the architecture and the bundle that the compiled code is for. */
  #origin = ''
  /** The kinds of runs that have contributed; undefined if no code is kept. */
  #runs: readonly string[] | undefined

  /** The folder may not exist yet. */
  constructor(folder: string | undefined) {
    this.#folder = folder
  }

  /** Returns the code kept for exactly this bundle and this Node.js; undefined if there is none that can be trusted. */
  read(bundle: Buffer): Buffer | undefined {
    this.#origin = `${process.version} ${process.arch} ${hash('sha256', bundle)}`
    return attempt('read', () => {
      const folder = this.#folder
      if (folder === undefined || !isTrustedFolder(folder)) return undefined
      const file = readPrivateFile(join(folder, NAME), MAX_BYTES)
      if (file === undefined || file.length < HEADER_BYTES) return undefined
      const [runs, code] = [file.subarray(DIGEST_BYTES, HEADER_BYTES), file.subarray(HEADER_BYTES)]
      if (!this.#seal(runs, code).equals(file.subarray(0, DIGEST_BYTES))) return undefined
      const list = runs.toString('latin1').trimEnd()
      this.#runs = list === '' ? [] : list.split(',')
      return code
    })
  }

  /** Forgets the code that was read: Node.js has refused it. */
  discard(): void {
    this.#runs = undefined
  }

  /**
   * Replaces the kept code, unless a run of the same kind has already contributed to it or the list of kinds has no
   * room. A run without a kind may have lost code that it compiled. Its code is kept only if no other code is kept, and
   * the next run with a kind replaces it.
   */
  keep(run: string | undefined, compile: () => Buffer): void {
    attempt('kept', () => {
      const folder = this.#folder
      if (folder === undefined || !this.#lacks(run) || !makeTrustedFolder(folder)) return
      const list = [...(this.#runs ?? []), run].filter(kind => kind !== undefined).join(',')
      const runs = Buffer.from(list.padEnd(RUNS_BYTES), 'latin1')
      if (runs.length > RUNS_BYTES) return
      const code = compile()
      replacePrivateFile(join(folder, NAME), Buffer.concat([this.#seal(runs, code), runs, code]))
    })
  }

  #lacks(run: string | undefined): boolean {
    return this.#runs === undefined || (run !== undefined && !this.#runs.includes(run))
  }

  #seal(runs: Buffer, code: Buffer): Buffer {
    const text = `${this.#origin} ${runs.toString('latin1')} ${hash('sha256', code)}`
    return hash('sha256', Buffer.from(text), 'buffer')
  }
}

/**
 * Returns undefined if `act` throws. If the runner's debug log is on, it then says why this run or the next one takes
 * longer.
 */
function attempt<Result>(deed: 'read' | 'kept', act: () => Result): Result | undefined {
  try {
    return act()
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : 'unknown error'
    if (process.env['RUNNER_DEBUG'] === '1') process.stdout.write(`::debug::Compiled code was not ${deed}: ${code}\n`)
    return undefined
  }
}

/** A dispensable file must not use up a disk's last space. */
const MIN_FREE_BYTES = 64 * 1024 * 1024

/**
 * Reads a regular file that belongs to us alone and has one name. Returns undefined for any other file, for a file of
 * more than `maxBytes`, and if there is no file. Never waits for a pipe. Throws the system's error for a symlink and
 * for a file that cannot be read.
 */
function readPrivateFile(path: string, maxBytes: number): Buffer | undefined {
  const fd = openIfPresent(path)
  if (fd === undefined) return undefined
  try {
    const found = fstatSync(fd)
    const isOurs = found.isFile() && found.uid === process.getuid?.() && !isOpenToOthers(found) && found.nlink === 1
    return isOurs && found.size <= maxBytes ? readFileSync(fd) : undefined
  } finally {
    closeSync(fd)
  }
}

/**
 * Replaces a file as a whole, with mode 0600, but does not sync it. Removes the temporary files of killed processes.
 * Throws the system's error, or one with the code `ENOSPC` if the disk would have less than 64 MiB left.
 */
function replacePrivateFile(path: string, bytes: Buffer): void {
  removeRemains(path)
  const { bavail, bsize } = statfsSync(dirname(path))
  if (bavail * bsize < MIN_FREE_BYTES + bytes.length)
    throw Object.assign(new Error('Little space.'), { code: 'ENOSPC' })
  const temporary = temporaryName(path)
  try {
    writeFileSync(temporary, bytes, { flag: 'wx', mode: 0o600 })
    renameSync(temporary, path)
  } catch (error) {
    tryUnlink(temporary)
    throw error
  }
}

function openIfPresent(path: string): number | undefined {
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

/**
 * In rare cases, this function also removes the temporary file of a live process, whose rename then fails. The failure
 * is harmless, because the file is dispensable.
 */
function removeRemains(path: string): void {
  const folder = dirname(path)
  for (const name of readdirSync(folder))
    if (name.startsWith(`${basename(path)}.`) && ownerOfTemporary(name) !== undefined) tryUnlink(join(folder, name))
}

function tryUnlink(path: string): void {
  try {
    unlinkSync(path)
  } catch {
    // The next run that replaces the file removes this temporary file.
  }
}

/**
 * True if a folder is a real directory that belongs to us alone, in a place that only we and root can change. These are
 * the rules of `requireSafeHost` for `.hub-deploy/`, without the exception that an operator can make. Throws the
 * system's error if the folder cannot be examined.
 */
export function isTrustedFolder(path: string): boolean {
  const us = process.getuid?.()
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (us === undefined || found === undefined) return false
  return findExposureOf(found, us) === undefined && isDecidedByUs(dirname(path), us)
}

/** Like `isTrustedFolder`, but first creates a missing folder and its parents if nobody else can change their place. */
export function makeTrustedFolder(path: string): boolean {
  const us = process.getuid?.()
  if (us === undefined) return false
  if (isMissing(path) && makeWay(dirname(path), us)) mkdirSync(path, { mode: 0o700 })
  return isTrustedFolder(path)
}

function makeWay(folder: string, us: number): boolean {
  if (!isMissing(folder)) return isDecidedByUs(folder, us)
  if (!makeWay(dirname(folder), us)) return false
  mkdirSync(folder, { mode: 0o700 })
  return true
}

function isDecidedByUs(folder: string, us: number): boolean {
  return decidersOf(folder, us).every(({ isForeign, isOpen }) => !isForeign && !isOpen)
}

function isMissing(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) === undefined
}
