import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { replaceActionTables } from './action-tables.ts'
import { runProgram } from './program.ts'

const ROOT = join(import.meta.dirname, '..')

await runProgram({
  name: 'npm run docs',
  purpose: 'Updates the tables of inputs and outputs in the READMEs from action.yml.',
  options: { check: { type: 'boolean', help: 'change nothing; fail (exit code 1) if a table does not match' } },
  async run({ check }) {
    const stale = actionFolders().filter(isStale)
    if (check) refuseStale(stale)
    else stale.forEach(update)
  },
})

function actionFolders(): string[] {
  const folders = readdirSync(ROOT, { withFileTypes: true }).filter(entry => entry.isDirectory())
  return ['.', ...folders.map(folder => folder.name)].filter(folder => existsSync(join(ROOT, folder, 'action.yml')))
}

function isStale(folder: string): boolean {
  return read(folder, 'README.md') !== updatedReadme(folder)
}

function update(folder: string): void {
  writeFileSync(join(ROOT, folder, 'README.md'), updatedReadme(folder))
  process.stdout.write(`updated ${join(folder, 'README.md')}\n`)
}

function refuseStale(stale: readonly string[]): void {
  if (stale.length === 0) return
  const files = stale.map(folder => join(folder, 'README.md')).join(', ')
  process.stderr.write(`The tables in ${files} do not match action.yml: run \`npm run docs\`.\n`)
  process.exitCode = 1
}

function updatedReadme(folder: string): string {
  return replaceActionTables(read(folder, 'README.md'), read(folder, 'action.yml'))
}

function read(folder: string, name: string): string {
  return readFileSync(join(ROOT, folder, name), 'utf8')
}
