import { hash } from 'node:crypto'
import { lstatSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, isAbsolute, join } from 'node:path'
import { Script } from 'node:vm'
import { decidersOf, findExposureOf } from '../install/host/permissions.ts'

/**
 * Runs an action of the bundle in `folder`. Uses the code that an earlier run compiled, if that code can be trusted.
 * The first run that changes the host keeps the code that it needed for later runs.
 */
export function start(folder: string, action: string): Promise<void> {
  const release = holdCancel()
  const { exports, keepCompiled } = loadBundle(join(folder, 'index.js'), cacheFolder(process.env))
  const run = exports[action]
  if (run === undefined) throw new Error(`The bundle has no action ${action}.`)
  const ended = run(keepCompiled)
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

/** An action that the bundle exports. At the end of a run that changed the host, it calls `onInstalled`. */
type Action = (onInstalled: () => void) => Promise<void>

interface Bundle {
  readonly exports: Readonly<Record<string, Action | undefined>>
  /** Keeps the code of the bundle that has been compiled so far, unless this run used kept code. Never throws. */
  keepCompiled(): void
}

const NAME = 'compiled'
/** The bytes before the code. Their number must be a multiple of 8, so that V8 can use the code in place. */
const DIGEST_BYTES = 32

/**
 * Loads the bundle, whose text is a function in ASCII that can load only modules of Node.js. Without the code that an
 * earlier run kept in the folder `cache`, a run merely takes longer: Node.js compiles what the kept code lacks. V8
 * refuses code that was compiled by another version of itself or with other options.
 *
 * A process that can write the kept code decides what runs, so the code is read and written only in a folder that only
 * this user and root can change. It is not synced. Its digest exposes a torn file, and a file for another bundle or
 * another Node.js.
 *
 * Node's own compile cache keeps only what is compiled before the bundle runs, less than half of what a run needs. With
 * it, S takes 28 % more processor time (AMD EPYC).
 */
export function loadBundle(file: string, cache?: string): Bundle {
  const bytes = readFileSync(file)
  const origin = `${process.version} ${process.arch} ${hash('sha256', bytes)}`
  const cachedData = attempt(() => readCompiled(cache, origin))
  const script = new Script(bytes.toString('latin1'), { filename: file, ...(cachedData && { cachedData }) })
  const isKept = script.cachedDataRejected === false
  const module = { exports: {} }
  script.runInThisContext()(module, module.exports, process.getBuiltinModule, dirname(file))
  const keepCompiled = (): void => {
    if (!isKept) attempt(() => writeCompiled(cache, origin, script))
  }
  return { exports: module.exports, keepCompiled }
}

function readCompiled(cache: string | undefined, origin: string): Buffer | undefined {
  if (cache === undefined || !isTrustedFolder(cache)) return undefined
  const file = readFileSync(join(cache, NAME))
  const code = file.subarray(DIGEST_BYTES)
  return seal(origin, code).equals(file.subarray(0, DIGEST_BYTES)) ? code : undefined
}

function writeCompiled(cache: string | undefined, origin: string, script: Script): void {
  if (cache === undefined || !makeTrustedFolder(cache)) return
  const code = script.createCachedData()
  writeFileSync(join(cache, NAME), Buffer.concat([seal(origin, code), code]), { mode: 0o600 })
}

function seal(origin: string, code: Buffer): Buffer {
  return hash('sha256', `${origin} ${hash('sha256', code)}`, 'buffer')
}

/** Returns undefined if `act` throws. */
function attempt<Result>(act: () => Result): Result | undefined {
  try {
    return act()
  } catch {
    return undefined
  }
}

/**
 * Returns this action's folder in the user's cache, whose data can be lost (XDG Base Directory Specification). The
 * folder may not exist yet. Returns undefined if the environment names no absolute path. By default, the folder is not
 * in a project root: a service that may write only there, but runs as the same user, must not be able to replace this
 * action's compiled code.
 */
export function cacheFolder({ XDG_CACHE_HOME, HOME }: NodeJS.ProcessEnv): string | undefined {
  const base = [XDG_CACHE_HOME ?? '', join(HOME ?? '', '.cache')].find(isAbsolute)
  return base && join(base, 'hub-deploy')
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

/**
 * Like `isTrustedFolder`, but first creates a missing folder and its parents if nobody else can change their place.
 * Throws the system's error if that fails.
 */
export function makeTrustedFolder(path: string): boolean {
  const us = process.getuid?.()
  if (us !== undefined && isDecidedByUs(path, us)) mkdirSync(path, { recursive: true, mode: 0o700 })
  return isTrustedFolder(path)
}

function isDecidedByUs(path: string, us: number): boolean {
  return decidersOf(path, us).every(({ isForeign, isOpen }) => !isForeign && !isOpen)
}
