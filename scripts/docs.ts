import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { replaceActionTables } from './action-tables.ts'

const ROOT = join(import.meta.dirname, '..')
const { values } = parseArgs({ options: { check: { type: 'boolean', default: false } } })

const stale = actionFolders().filter(isStale)
if (values.check) refuseStale()
else stale.forEach(update)

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

function refuseStale(): void {
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
