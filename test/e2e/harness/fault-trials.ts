import { existsSync, readFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import type { ActionResult } from '../../../local/runner.ts'
import { assertNothingStrays, type Listing, listLive, listVersions, readReports } from './evidence.ts'
import { randomFrom } from './random.ts'
import { openScene, type Scene, type SceneHost, type SceneName } from './rollback-scenes.ts'

/** The errors that a file call or the start of a child meets. */
export const ERRORS = ['EIO', 'ENOSPC', 'ENOMEM', 'EMFILE', 'EDQUOT', 'EACCES'] as const
export type FaultError = (typeof ERRORS)[number]

/** One call of a rollback that fails: once, or, with all later calls like it, until the cause is gone. */
export interface Fault {
  /** The number of the call, counted from 1. */
  readonly nth: number
  readonly error: FaultError
  readonly isForEver: boolean
}

/** The result of one trial. */
export interface Trial {
  readonly fault: Fault
  /** The call that failed; undefined if the run made fewer calls. */
  readonly call: string | undefined
  /** How the run and, after the last attempt, its report ended. */
  readonly outcome: string
  /** What broke the promise, with the run's log; undefined if nothing did. */
  readonly problem: string | undefined
}

export interface Trials {
  readonly scene: Scene
  /** The calls of an undisturbed rollback, in order. */
  readonly calls: readonly string[]
  /** The numbers of those calls from the first announcement of the undo until the journal is gone. */
  readonly undo: readonly number[]
  run(fault: Fault): Promise<Trial>
  /** Runs so many trials at the same time, and calls `onEnd` with each result. */
  runAll(faults: readonly Fault[], jobs: number, onEnd?: (trial: Trial) => void): Promise<Trial[]>
  close(): Promise<void>
}

const PRELOAD = join(import.meta.dirname, 'fail-calls.mjs')

/** What a preloaded action has written about its calls. */
interface Seen {
  readonly calls: readonly string[]
  readonly failed?: { readonly name: string; readonly area: string; readonly path: string }
}

export async function openTrials(name: SceneName): Promise<Trials> {
  const scene = await openScene(name)
  try {
    return await openTrialsOf(scene)
  } catch (error) {
    await scene.close()
    throw error
  }
}

async function openTrialsOf(scene: Scene): Promise<Trials> {
  const reference = scene.copy('reference')
  const old = listVersions(reference.root)
  const result = await reference.rollBack(faultEnvironment(reference))
  const { calls } = readSeen(reference)
  const problem = describeOutcome(result) ?? whyNotOld(reference, old)
  if (problem !== undefined) throw new Error(`${scene.name}: ${problem}\n${result.log}`)
  const wanted = await newListing(reference)
  let count = 0
  const run: Trials['run'] = async fault => {
    const host = scene.copy(`trial-${++count}`)
    try {
      return await (fault.isForEver ? failForEver(host, fault, { old, wanted }) : failOnce(host, fault, old))
    } finally {
      host.close()
    }
  }
  return {
    scene,
    calls,
    undo: numbersOfUndo(calls),
    run,
    async runAll(faults, jobs, onEnd = () => {}) {
      const [waiting, done] = [[...faults], [] as Trial[]]
      const work = async (): Promise<void> => {
        for (let fault = waiting.shift(); fault !== undefined; fault = waiting.shift()) {
          const trial = await run(fault)
          onEnd(trial)
          done.push(trial)
        }
      }
      await Promise.all(Array.from({ length: jobs }, work))
      return done
    },
    close: () => scene.close(),
  }
}

async function newListing(host: SceneHost): Promise<Listing> {
  const { exitCode, log } = await host.next()
  if (exitCode !== 0) throw new Error(log)
  return listLive(host.root)
}

/** After the run and its post step, the host must be exactly old, and the outcome `rolled_back`. */
async function failOnce(host: SceneHost, fault: Fault, old: Listing): Promise<Trial> {
  const main = await host.rollBack(faultEnvironment(host, fault))
  const call = callOf(readSeen(host), fault)
  const logs = [main.log]
  if (hasJournal(host)) logs.push((await host.post(main)).log)
  const problem = describeOutcome(main) ?? whyNotOld(host, old) ?? whyNotSettled(host)
  return { fault, call, outcome: outcomeOf(main, host), problem: problem && [problem, ...logs].join('\n') }
}

/**
 * While the cause lasts, only a host that is neither old nor new may be called `inconsistent`. The first run after that
 * must heal it.
 */
async function failForEver(host: SceneHost, fault: Fault, { old, wanted }: Listings): Promise<Trial> {
  const main = await host.rollBack(faultEnvironment(host, fault))
  const seen = readSeen(host)
  const call = callOf(seen, fault)
  const logs = [main.log]
  // Where the outputs cannot be written, they cannot say anything.
  const isMute = seen.failed?.path.endsWith('/output')
  let problem = isMute ? undefined : whyUntrue(main, whyFilesAreNotOld(host, old, 'some new folders may stay'))
  if (seen.failed !== undefined && hasJournal(host))
    logs.push((await host.post(main, faultEnvironment(host, { ...fault, from: seen.failed }))).log)
  problem ??= await heal(host, main, { fault, old, wanted, logs })
  return { fault, call, outcome: outcomeOf(main, host), problem: problem && [problem, ...logs].join('\n') }
}

interface Listings {
  readonly old: Listing
  readonly wanted: Listing
}

interface Healing extends Listings {
  readonly fault: Fault
  readonly logs: string[]
}

/** Lets one run recover the host. The number of the call decides which, so that each kind of run has its turn. */
async function heal(host: SceneHost, main: ActionResult, healing: Healing): Promise<string | undefined> {
  const { fault, old, wanted, logs } = healing
  const isPost = fault.nth % 3 === 0 && hasJournal(host)
  if (isPost || fault.nth % 3 === 1) {
    if (isPost) logs.push((await host.post(main)).log)
    else logs.push(await host.recover())
    const problem = whyFilesAreNotOld(host, old, 'some new folders may stay') ?? whyNotSettled(host)
    if (problem !== undefined) return problem
  }
  const next = await host.next()
  logs.push(next.log)
  if (next.exitCode !== 0) return `the next run ended ${next.outputs['outcome']}`
  const problem = differenceBetween(listLive(host.root), wanted)
  return problem === undefined ? (whyNotReported(host) ?? whyAnythingStrays(host)) : `after the next run, ${problem}`
}

function faultEnvironment(host: SceneHost, fault?: Fault & Partial<Pick<Required<Seen>, never>> & { from?: unknown }) {
  const { nth, error = 'EIO', isForEver: forEver = false, from } = fault ?? {}
  const errno = constants.errno[error]
  return {
    NODE_OPTIONS: `--import=${PRELOAD}`,
    ARMED: host.armed,
    FAULT_ROOT: host.root,
    FAULT_LOG: logOf(host),
    FAULT: JSON.stringify({ nth: from === undefined ? nth : undefined, errno, forEver, from }),
  }
}

function logOf({ armed }: SceneHost): string {
  return `${armed}.calls`
}

function readSeen(host: SceneHost): Seen {
  return existsSync(logOf(host)) ? JSON.parse(readFileSync(logOf(host), 'utf8')) : { calls: [] }
}

function callOf({ calls, failed }: Seen, { nth }: Fault): string | undefined {
  return failed === undefined ? undefined : calls[nth - 1]
}

function hasJournal({ root }: SceneHost): boolean {
  return existsSync(join(root, '.hub-deploy/journal.jsonl'))
}

/** A post step has no outputs: its report says how it ended. */
function describeOutcome({ outputs, signal, exitCode }: ActionResult): string | undefined {
  if (signal !== null) return `the run was ended by ${signal}`
  const { outcome } = outputs
  if (outcome === undefined) return exitCode === 0 ? undefined : `the post step ended with ${exitCode}`
  return outcome === 'rolled_back' ? undefined : `the run ended ${outcome} (${outputs['error-code']})`
}

/** What the run says that is not true; `whyNot` says why the host is not old. */
function whyUntrue({ outputs, exitCode }: ActionResult, whyNot: string | undefined): string | undefined {
  const { outcome } = outputs
  const allowed = whyNot === undefined ? 'rolled_back' : 'inconsistent'
  if (outcome === undefined)
    return whyNot === undefined || exitCode !== 0 ? undefined : `the post step passes, but ${whyNot}`
  return outcome === allowed ? undefined : `the run ended ${outcome}, but ${whyNot ?? 'the host is exactly old'}`
}

function whyNotOld(host: SceneHost, old: Listing): string | undefined {
  return whyFilesAreNotOld(host, old) ?? host.whyServiceIsNotOld()
}

const NEW_FOLDERS = /^(plugins|extensions)$/

function whyFilesAreNotOld(host: SceneHost, old: Listing, mayStay?: 'some new folders may stay'): string | undefined {
  const versions = Object.entries(listVersions(host.root))
  const found = versions.filter(([path]) => mayStay === undefined || !NEW_FOLDERS.test(path) || path in old)
  return differenceBetween(Object.fromEntries(found), old)
}

function differenceBetween(found: Listing, wanted: Listing): string | undefined {
  const paths = [...new Set([...Object.keys(found), ...Object.keys(wanted)])]
  const different = paths.filter(path => found[path] !== wanted[path])
  return different.length === 0 ? undefined : `these paths differ: ${different.join(', ')}`
}

function whyNotSettled(host: SceneHost): string | undefined {
  return hasJournal(host) ? 'the journal is still there' : whyNotReported(host)
}

function whyNotReported({ root }: SceneHost): string | undefined {
  const ends = [...readReports(root).values()].map(({ outcome }) => outcome)
  if (ends.some(outcome => outcome === 'inconsistent' || outcome === 'interrupted')) return `reports say ${ends}`
  return ends.includes('rolled_back') ? undefined : 'no report says rolled_back'
}

function whyAnythingStrays({ root }: SceneHost): string | undefined {
  try {
    assertNothingStrays(root)
    return undefined
  } catch (error) {
    return `something strays: ${error instanceof Error ? error.message : error}`
  }
}

function outcomeOf(main: ActionResult, { root }: SceneHost): string {
  const reported = [...readReports(root).values()].find(({ deployment_id: id }) => id === main.outputs['deployment-id'])
  return `${main.outputs['outcome'] ?? `exit ${main.exitCode}`}, then ${reported?.outcome ?? 'no report'}`
}

/** Every call with every error, once and for ever. */
export function everyFault(calls: number): Fault[] {
  const numbers = Array.from({ length: calls }, (_, index) => index + 1)
  return numbers.flatMap(nth => ERRORS.flatMap(error => [false, true].map(isForEver => ({ nth, error, isForEver }))))
}

/** Every call once, with one error. */
export function chooseFaults(calls: readonly number[], seed: string): Fault[] {
  const random = randomFrom(seed)
  return calls.map(nth => ({ nth, error: random.pick(ERRORS), isForEver: random.below(2) === 1 }))
}

/** The command that repeats a trial. */
export function describeRepetition(scene: SceneName, { nth, error, isForEver }: Fault): string {
  return `npm run faults -- --scene '${scene}' --nth ${nth} --error ${error} --${isForEver ? 'for-ever' : 'once'}`
}

function numbersOfUndo(calls: readonly string[]): number[] {
  const first = calls.findIndex(call => /^write.*\/journal\.jsonl$/.test(call))
  const last = calls.findIndex(call => /^unlink.*\/journal\.jsonl$/.test(call))
  // The sync of the folder takes three calls.
  return calls.map((_, index) => index + 1).slice(first, last + 4)
}
