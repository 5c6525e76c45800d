import { spawn } from 'node:child_process'
import {
  chmodSync,
  cpSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { API } from 'typescript/unstable/sync'
import { randomFrom } from '../../test/e2e/harness/random.ts'
import { type Imports, importsIn } from '../../test/imports.ts'
import { type Mutation, mutate, mutationsOf } from './mutations.ts'

/** What became of a mutation. */
export interface Trial {
  readonly mutation: Mutation
  /** The failed test, or another sign that the tests noticed; undefined if the mutant survived. */
  readonly killedBy: string | undefined
}

export interface Trials {
  /** All mutations, in a random order that the seed decides. */
  readonly mutations: readonly Mutation[]
  /** Runs the tests with this mutation. Returns undefined if the compiler refuses it. */
  run(mutation: Mutation): Promise<Trial | undefined>
  close(): void
}

/** The checkout, and which of its files to mutate. */
export interface Choice {
  readonly root: string
  readonly files: readonly string[]
  readonly seed: string
}

const REPORTER = join(import.meta.dirname, 'first-failure.ts')
/** These run `dist/`, import nothing from `src/`, or start other scripts. */
const NO_UNIT_TEST = /^test\/(?:e2e|hub|scripts)\//
/** A mutant may end a loop's condition. Added to several times what the tests take without a mutant. */
const SLACK_MS = 30_000
const SLOWNESS = 4
/** An unused name is no reason to refuse a mutant: nobody needs to run the compiler to make this mistake. */
const UNUSED = [6133, 6192, 6196, 6198]
const NOT_COPIED = ['.git', 'node_modules', '.test-processes']

/** Copies the checkout to a temporary folder, where the mutants live. */
export function openTrials({ root, files, seed }: Choice): Trials {
  const folder = mkdtempSync(join(tmpdir(), 'mutants-'))
  const copy = join(folder, 'checkout')
  const temporary = join(folder, 'tmp')
  mkdirSync(temporary)
  // Some tests work as another user.
  chmodSync(folder, 0o755)
  chmodSync(temporary, 0o1777)
  cpSync(root, copy, { recursive: true, filter: path => !NOT_COPIED.includes(basename(path)) })
  symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
  const remove = (): void => rmSync(folder, { recursive: true, force: true, maxRetries: 9 })
  process.once('exit', remove)

  const compiler = openCompiler(copy)
  const imports = importsIn(
    globSync('{src,test}/**/*.ts', { cwd: copy }).map(file => [file, readFileSync(join(copy, file), 'utf8')]),
  )
  const place = { copy, temporary }
  const limits = new Map<string, number>()
  /** Runs these tests without a mutant, once, because only tests that pass can notice one. */
  const mostMsOf = async (tests: readonly string[]): Promise<number> => {
    const known = limits.get(tests.join())
    if (known !== undefined) return known
    const started = performance.now()
    const failure = await firstFailure(tests, place)
    if (failure !== undefined) throw new Error(`Without a mutant, this fails: ${failure}`)
    const mostMs = SLACK_MS + SLOWNESS * (performance.now() - started)
    limits.set(tests.join(), mostMs)
    return mostMs
  }

  return {
    mutations: shuffle(files.toSorted().flatMap(compiler.mutationsOf), seed),
    async run(mutation) {
      const path = join(copy, mutation.file)
      const text = readFileSync(path, 'utf8')
      const tests = testsOf(mutation.file, imports)
      const mostMs = await mostMsOf(tests)
      try {
        writeFileSync(path, mutate(text, mutation))
        if (compiler.refuses(mutation.file)) return undefined
        return { mutation, killedBy: await firstFailure(tests, { ...place, mostMs }) }
      } finally {
        writeFileSync(path, text)
      }
    },
    close() {
      compiler.close()
      remove()
      process.off('exit', remove)
    },
  }
}

/** Returns the unit tests that import the file or, if none does, those that import one of its importers. Its own come first. */
export function testsOf(file: string, imports: Imports): string[] {
  const importersOf = (names: readonly string[]): string[] =>
    [...imports].filter(([, all]) => all.some(name => names.includes(name))).map(([importer]) => importer)
  const tests = (names: readonly string[]): string[] =>
    names.filter(name => name.endsWith('.test.ts') && !NO_UNIT_TEST.test(name)).toSorted(ownFirst)
  const own = file.replace(/^src\/(.*)\.ts$/, 'test/$1.test.ts')
  const ownFirst = (a: string, b: string): number => Number(b === own) - Number(a === own)
  const direct = importersOf([file])
  const near = tests(direct)
  return near.length > 0 ? near : tests(importersOf(direct))
}

function shuffle(mutations: readonly Mutation[], seed: string): Mutation[] {
  const random = randomFrom(seed)
  const left = [...mutations]
  return mutations.map(() => left.splice(random.below(left.length), 1)[0] as Mutation)
}

/** TypeScript, with the project of the copy. */
function openCompiler(copy: string) {
  const config = join(copy, 'tsconfig.json')
  const api = new API({ cwd: copy })
  let snapshot = api.updateSnapshot({ openProjects: [config] })
  const program = () => {
    const project = snapshot.getProject(config)
    if (project === undefined) throw new Error(`TypeScript does not know the project ${config}.`)
    return project.program
  }
  return {
    mutationsOf(file: string): Mutation[] {
      const source = program().getSourceFile(join(copy, file))
      if (source === undefined) throw new Error(`TypeScript does not know the file ${file}.`)
      return mutationsOf(source, file)
    },
    /** Reads the file again. */
    refuses(file: string): boolean {
      const path = join(copy, file)
      const old = snapshot
      snapshot = api.updateSnapshot({ fileChanges: { changed: [path] } })
      old.dispose()
      const problems = [...program().getSyntacticDiagnostics(path), ...program().getSemanticDiagnostics(path)]
      return problems.some(({ code }) => !UNUSED.includes(code))
    },
    close: () => api.close(),
  }
}

interface Place {
  readonly copy: string
  readonly temporary: string
  /** Without a limit for the run that sets it. */
  readonly mostMs?: number
}

/** Runs tests until one fails. Returns its name, or undefined if all pass. */
async function firstFailure(tests: readonly string[], { copy, temporary, mostMs }: Place): Promise<string | undefined> {
  // With the first of these variables, the child would report its tests to the run that our own test belongs to.
  const { NODE_TEST_CONTEXT: _, CI: __, SWEEP: ___, ...env } = process.env
  const child = spawn(process.execPath, ['--test', '--test-concurrency=1', `--test-reporter=${REPORTER}`, ...tests], {
    cwd: copy,
    env: { ...env, TMPDIR: temporary },
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: true,
  })
  const kill = (): void => {
    // The group is gone if every process in it has ended.
    try {
      process.kill(-(child.pid as number), 'SIGKILL')
    } catch {}
  }
  // Before the copy is removed, because the tests write to it.
  process.prependOnceListener('exit', kill)
  let failure: string | undefined
  const note = (sign: string): void => {
    failure ??= sign
    kill()
  }
  const timer =
    mostMs === undefined ? undefined : setTimeout(note, mostMs, `no end after ${Math.round(mostMs / 1000)} s`)
  child.stdout.setEncoding('utf8').on('data', (text: string) => note(text.split('\n')[0] ?? ''))
  const status = await new Promise<string>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code, signal) => resolve(`exit with ${code ?? signal}`))
  })
  clearTimeout(timer)
  process.off('exit', kill)
  kill()
  return failure ?? (status === 'exit with 0' ? undefined : status)
}
