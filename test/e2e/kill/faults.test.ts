import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { describe, it, type TestContext } from 'node:test'
import { byExtent } from '../../extent.ts'
import { chooseFaults, describeRepetition, type Fault, openTrials, type Trials } from '../harness/fault-trials.ts'
import { countOutcomes } from '../harness/random.ts'
import { SCENES, type SceneName } from '../harness/rollback-scenes.ts'

const SEED = Number(process.env['FAULT_SEED'] ?? randomInt(1_000_000))

/** One in this many successive calls fails once, and one in this many for ever. */
const ONCE = byExtent({ sample: 150, ci: 1 })
const FOR_EVER = byExtent({ sample: 300, ci: 50, full: 1 })
/** The same for the scenes with the most calls. They make most of them in the same code as the others. */
const ONCE_IN_LONG: Partial<Record<SceneName, number>> = {
  'a project': byExtent({ sample: 150, ci: 2, full: 1 }),
  'a rollback': byExtent({ sample: 150, ci: 7, full: 1 }),
  'the recovery of a killed update': byExtent({ sample: 150, ci: 4, full: 1 }),
}
/** `npm test` tries one rollback of each kind of part. */
const TRIED = byExtent<readonly SceneName[]>({ sample: ['an update', 'a project'], ci: SCENES })

describe(`a rollback of which one call fails (FAULT_SEED=${SEED})`, { concurrency: 3 }, () => {
  for (const name of TRIED) {
    it(`restores the host and says so: ${name}`, async t => {
      const trials = await openTrials(name)
      try {
        await tryAll(t, trials, name)
      } finally {
        await trials.close()
      }
    })
  }
})

async function tryAll(t: TestContext, trials: Trials, name: SceneName): Promise<void> {
  const isServed = name.endsWith('with a service')
  const calls = trials.undo.filter(nth => !isServed || isOfService(trials.calls[nth - 1]))
  const once = choose(calls, ONCE_IN_LONG[name] ?? ONCE, { name, isForEver: false })
  const faults = [once, choose(calls, FOR_EVER, { name, isForEver: true })]
  // A run with a service mostly waits for the service.
  const done = await trials.runAll(faults.flat(), isServed ? 8 : 2)
  for (const isForEver of [false, true]) {
    const alike = done.filter(({ fault }) => fault.isForEver === isForEver)
    const errors = countOutcomes(alike.map(({ fault }) => fault.error))
    const outcomes = countOutcomes(alike.map(({ outcome }) => outcome))
    if (alike.length > 0) t.diagnostic(`${isForEver ? 'for ever' : 'once'}: ${errors}; ${outcomes}`)
  }
  const failed = done.filter(({ problem }) => problem !== undefined)
  const texts = failed.map(({ fault, call, problem }) => `${call}: ${problem}\n${describeRepetition(name, fault)}\n`)
  assert.equal(texts.join('\n'), '')
}

/** With a service, a rollback makes the same calls, and starts children besides. */
function isOfService(call: string | undefined): boolean {
  return call?.startsWith('spawn ') === true
}

function choose(calls: readonly number[], every: number, { name, isForEver }: Kind): Fault[] {
  const faults = chooseFaults(calls, `${SEED} ${name} ${isForEver}`)
  return faults.filter((_, at) => at % every === SEED % every).map(fault => ({ ...fault, isForEver }))
}

interface Kind {
  readonly name: SceneName
  readonly isForEver: boolean
}
