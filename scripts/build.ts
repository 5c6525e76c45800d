import { execFileSync } from 'node:child_process'
import { cpSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const ROOT = join(import.meta.dirname, '..')
const BUILD = join(ROOT, 'build')
const DIST = join(ROOT, 'dist')

rmSync(BUILD, { recursive: true, force: true })
rmSync(DIST, { recursive: true, force: true })
compile()
replaceUndici()
bundle()
await writeStubs()
process.stdout.write(`dist: ${readdirSync(DIST).toSorted().join(', ')}\n`)

function compile(): void {
  runTool('tsc', ['-p', 'tsconfig.build.json'])
}

/**
 * The bundler resolves an import next to the file that contains it. So it bundles a copy of @actions that finds the
 * replacement where the installed one would find undici.
 */
function replaceUndici(): void {
  const modules = join(BUILD, 'node_modules')
  cpSync(join(ROOT, 'node_modules', '@actions'), join(modules, '@actions'), { recursive: true })
  cpSync(join(ROOT, 'scripts', 'no-undici'), join(modules, 'undici'), { recursive: true })
}

/** Not minified, so that operators can read what they run. Not cached, so that the same sources give the same bytes. */
function bundle(): void {
  const options = ['--out', DIST, '--license', 'licenses.txt', '--target', 'es2022', '--no-cache', '--quiet']
  runTool('ncc', ['build', join(BUILD, 'main.js'), ...options])
}

/** Writes a file for each function that the bundle exports: `deploy-post.js` runs `deployPost`. */
async function writeStubs(): Promise<void> {
  const bundled: Record<string, unknown> = await import(pathToFileURL(join(DIST, 'index.js')).href)
  const actions = Object.keys(bundled).filter(name => typeof bundled[name] === 'function')
  if (actions.length === 0) throw new Error('The bundle exports no action: export at least one from src/main.ts.')
  for (const action of actions) {
    writeFileSync(join(DIST, stubName(action)), `import { ${action} } from './index.js'\nawait ${action}()\n`)
  }
}

function stubName(action: string): string {
  return `${action.replace(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}.js`
}

function runTool(name: string, args: readonly string[]): void {
  execFileSync(join(ROOT, 'node_modules', '.bin', name), args, { cwd: ROOT, stdio: 'inherit' })
}
