import { globSync } from 'node:fs'
import { join } from 'node:path'
import { UsageError } from '../hub/errors.ts'
import { openTrials, type Trial } from './mutants/trials.ts'
import { runProgram } from './program.ts'

const ROOT = join(import.meta.dirname, '..')
/** The rules about archives and trust, and what changes the host. */
const MUTATED = [
  'src/core/{archive,trust}/*.ts',
  'src/install/{archive,changes,files,host,journal,recovery,steps,transaction,trees}/*.ts',
]
const COUNT = 20

await runProgram({
  name: 'npm run mutants',
  purpose: `Makes small mistakes, one at a time, in a copy of the checkout: an await less, a negated condition, another operator,
number or error code, a call or a check less. Runs the unit tests that import the file or, if none does, those that
import its importers. What the compiler refuses does not count. Exits with 1 if a mutant survives: no test noticed it.
The files:
${MUTATED.map(pattern => `  ${pattern}`).join('\n')}`,
  options: {
    seed: { type: 'string', value: 'N', help: 'decides which mistakes (default: random)' },
    count: { type: 'string', value: 'N', help: `the number of mutants (default: ${COUNT})` },
    at: {
      type: 'string',
      value: 'FILE[:LINE]',
      help: 'makes only mistakes in this file or line, all of them by default',
    },
  },
  async run({ seed = `${Math.floor(Math.random() * 1e6)}`, count, at }) {
    const [file, line] = at?.split(':') ?? []
    const files = globSync(MUTATED, { cwd: ROOT }).filter(name => file === undefined || name === file)
    if (files.length === 0) throw new UsageError(`--at must name one of these files: ${MUTATED.join(', ')}`)
    const most = Number(count ?? (at === undefined ? COUNT : Number.POSITIVE_INFINITY))
    if (!(most > 0)) throw new UsageError('--count must be a number from 1.')
    // An end by a signal alone would leave the copy and a running test behind.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1))
    process.stdout.write(`seed ${seed}\n`)
    const survived = await tryMutants({ files, line: line === undefined ? undefined : Number(line), seed, most })
    process.exitCode = survived === 0 ? 0 : 1
  },
})

interface Wanted {
  readonly files: readonly string[]
  readonly line: number | undefined
  readonly seed: string
  readonly most: number
}

/** Prints each trial and the figures, and returns the number of mutants that survived. */
async function tryMutants({ files, line, seed, most }: Wanted): Promise<number> {
  const trials = openTrials({ root: ROOT, files, seed })
  try {
    const started = performance.now()
    const done: Trial[] = []
    let refused = 0
    for (const mutation of trials.mutations.filter(mutation => line === undefined || mutation.line === line)) {
      if (done.length >= most) break
      const trial = await trials.run(mutation)
      if (trial === undefined) refused++
      else {
        done.push(trial)
        print(trial)
      }
    }
    const survived = done.filter(({ killedBy }) => killedBy === undefined).length
    const seconds = Math.round((performance.now() - started) / 1000)
    process.stdout.write(
      `${done.length} mutants: ${done.length - survived} killed, ${survived} survived; ${refused} more refused by the compiler; ${seconds} s\n`,
    )
    return survived
  } finally {
    trials.close()
  }
}

function print({ mutation: { file, line, what }, killedBy }: Trial): void {
  const end = killedBy === undefined ? 'SURVIVED' : `killed by ${killedBy}`
  process.stdout.write(`${file}:${line}: ${what}\n  ${end}\n`)
}
