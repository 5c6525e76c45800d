import { availableParallelism } from 'node:os'
import { UsageError } from '../hub/errors.ts'
import {
  chooseFaults,
  describeRepetition,
  ERRORS,
  everyFault,
  type Fault,
  openTrials,
  type Trial,
} from '../test/e2e/harness/fault-trials.ts'
import { countOutcomes } from '../test/e2e/harness/random.ts'
import { SCENES, type SceneName } from '../test/e2e/harness/rollback-scenes.ts'
import { runProgram } from './program.ts'

await runProgram({
  name: 'npm run faults',
  purpose: `Makes each file call and each start of a child in each rollback fail, once and for ever, with each of these errors:
${ERRORS.join(', ')}.
Without options, this takes hours. Runs dist/, so build it first. Exits with 1 if a host is not as promised.`,
  options: {
    seed: {
      type: 'string',
      value: 'N',
      help: 'tries each call with one error, once or for ever, as this number decides',
    },
    scene: { type: 'string', value: 'NAME', help: `tries only this rollback: ${SCENES.slice(0, 2).join(', ')}, ...` },
    nth: { type: 'string', value: 'N', help: 'tries only this call' },
    error: { type: 'string', value: 'CODE', help: 'tries only this error' },
    'for-ever': { type: 'boolean', help: 'tries only calls that fail for ever' },
    once: { type: 'boolean', help: 'tries only calls that fail once' },
    jobs: { type: 'string', value: 'N', help: 'the number of runs at the same time (default: 2 for each processor)' },
  },
  async run({ seed, scene, nth, error, 'for-ever': isForEver, once: isOnce, jobs }) {
    const scenes = scene === undefined ? SCENES : SCENES.filter(name => name === scene)
    if (scenes.length === 0) throw new UsageError(`--scene must be one of: ${SCENES.join(', ')}`)
    const isWanted = (fault: Fault): boolean =>
      (nth === undefined || fault.nth === Number(nth)) &&
      (error === undefined || fault.error === error) &&
      (fault.isForEver ? !isOnce : !isForEver)
    let failures = 0
    for (const name of scenes)
      failures += await trySome(name, { seed, isWanted, jobs: Number(jobs ?? 2 * availableParallelism()) })
    process.exitCode = failures === 0 ? 0 : 1
  },
})

interface Choice {
  readonly seed: string | undefined
  readonly isWanted: (fault: Fault) => boolean
  readonly jobs: number
}

/** Tries faults in one rollback. Prints each failure and the figures, and returns the number of failures. */
async function trySome(name: SceneName, { seed, isWanted, jobs }: Choice): Promise<number> {
  const trials = await openTrials(name)
  try {
    const { calls } = trials
    const { length } = calls
    const faults = (
      seed === undefined
        ? everyFault(length)
        : chooseFaults(
            [...calls.keys()].map(index => index + 1),
            `${seed} ${name}`,
          )
    ).filter(isWanted)
    const started = performance.now()
    const done = await trials.runAll(faults, jobs, trial => print(name, trial))
    const seconds = Math.round((performance.now() - started) / 1000)
    const failed = done.filter(({ problem }) => problem !== undefined).length
    const kinds = (isForEver: boolean) =>
      countOutcomes(done.filter(({ fault }) => fault.isForEver === isForEver).map(({ outcome }) => outcome))
    process.stdout.write(
      `${name}: ${length} calls, ${done.length} trials, ${failed} failed, ${seconds} s\n  once: ${kinds(false)}\n  for ever: ${kinds(true)}\n`,
    )
    return failed
  } finally {
    await trials.close()
  }
}

function print(scene: SceneName, { fault, call, problem }: Trial): void {
  if (problem === undefined) return
  process.stdout.write(`FAILED ${call}: ${problem}\nRepeat with: ${describeRepetition(scene, fault)}\n\n`)
}
