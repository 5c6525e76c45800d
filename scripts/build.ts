import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { loadBundle } from '../src/start/start.ts'
import { bundleText, entryUsages } from './actions.ts'
import { runProgram } from './program.ts'

const ROOT = join(import.meta.dirname, '..')
const BUILD = join(ROOT, 'build')
const DIST = join(ROOT, 'dist')
/** The version in `runs.using` of action.yml. */
const NODE_MAJOR = 24

await runProgram({
  name: 'npm run build',
  purpose: 'Rebuilds dist/ from src/: one bundle, its loader, and a small file for each program.',
  options: {},
  run: build,
})

async function build(): Promise<void> {
  rmSync(BUILD, { recursive: true, force: true })
  rmSync(DIST, { recursive: true, force: true })
  compile()
  replaceUnused()
  bundleStart()
  bundleActions()
  writeStubs()
  process.stdout.write(`dist: ${readdirSync(DIST).toSorted().join(', ')}\n`)
}

/**
 * Compiles src/ for the bundler. The bundler and Node.js learn the type of a module from the nearest package.json. An
 * empty one means CommonJS, which `loadBundle` needs: it can keep the compiled code of a script, but not of an ES
 * module.
 */
function compile(): void {
  runTool('tsc', ['-p', 'tsconfig.build.json'])
  for (const folder of [BUILD, DIST]) {
    mkdirSync(folder, { recursive: true })
    writeFileSync(join(folder, 'package.json'), '{}\n')
  }
}

/**
 * Copies some packages to `build/`, and replaces some files with those of `scripts/replaced/`: the originals load a lot
 * of code for features that few or no runs need. The bundler bundles the files in `build/`, because it resolves each
 * import from the folder of the importing file.
 */
function replaceUnused(): void {
  const modules = join(BUILD, 'node_modules')
  for (const name of ['@actions', 'tunnel'])
    cpSync(join(ROOT, 'node_modules', name), join(modules, name), { recursive: true })
  cpSync(join(ROOT, 'scripts', 'replaced'), modules, { recursive: true })
}

/** Writes a separate bundle, `start.js`: the program that loads the main bundle. */
function bundleStart(): void {
  bundle('start/start.js')
  renameSync(join(DIST, 'index.js'), join(DIST, 'start.js'))
}

function bundleActions(): void {
  bundle('main.js', '--license', 'licenses.txt')
  const file = join(DIST, 'index.js')
  writeFileSync(file, bundleText(readFileSync(file, 'utf8')))
}

/**
 * Does not minify, so that operators can read what they run. Does not cache, so that the same sources give the same
 * bytes.
 */
function bundle(program: string, ...more: readonly string[]): void {
  const options = ['--out', DIST, '--target', 'es2022', '--no-cache', '--quiet', ...more]
  runTool('ncc', ['build', join(BUILD, program), ...options])
}

/** Writes a file for each function that the bundle exports: `deploy-post.js` runs `deployPost`. */
function writeStubs(): void {
  const { exports } = loadBundle(join(DIST, 'index.js'))
  const actions = Object.keys(exports).filter(name => typeof exports[name] === 'function')
  if (actions.length === 0) throw new Error('The bundle exports no action: export at least one from src/main.ts.')
  const usages = entryUsages(ROOT)
  for (const action of actions) {
    const name = stubName(action)
    writeFileSync(join(DIST, name), stubOf(action, usages.get(name)))
  }
}

/**
 * Builds a stub. If Node.js is too old, the stub says so and does not load the bundle. Therefore, even Node.js 12.22,
 * which some systems still have, must be able to parse the stub. A promise that never settles does not count as
 * success. With `--help`, which no runner passes, the stub prints its usage text if it has one.
 */
function stubOf(action: string, usage: string | undefined): string {
  const help =
    usage === undefined
      ? ''
      : ` else if (/^(--help|-h)$/.test(process.argv[2])) {
  console.log(${JSON.stringify(usage)})
}`
  return `let ended = false
const found = process.versions.node
if (parseInt(found, 10) < ${NODE_MAJOR}) {
  console.error('Error: ${stubName(action)} needs Node.js ${NODE_MAJOR}, but ' + process.execPath + ' is ' + found + ': run it with externals/node${NODE_MAJOR}/bin/node of the runner, or node_modules/.bin/node of a checkout.')
  process.exitCode = 1
}${help} else {
  process.once('exit', code => { if (!ended && code === 0) process.exitCode = 13 })
  require('./start.js').start(__dirname, '${action}').then(() => { ended = true })
}
`
}

function stubName(action: string): string {
  return `${action.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}.js`
}

function runTool(name: string, args: readonly string[]): void {
  execFileSync(join(ROOT, 'node_modules', '.bin', name), args, { cwd: ROOT, stdio: 'inherit' })
}
