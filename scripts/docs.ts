import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { actionFolders, replaceActionTables } from './actions.ts'
import { buildJsonSchemas } from './json-schemas.ts'
import { runProgram } from './program.ts'

const ROOT = join(import.meta.dirname, '..')

await runProgram({
  name: 'npm run docs',
  purpose:
    "Updates the generated documentation: in each action's README, the tables of inputs and outputs of its action.yml;\nin schemas/, the JSON Schemas of the plan and the host config.",
  options: { check: { type: 'boolean', help: 'change nothing; fail (exit code 1) if a file does not match' } },
  async run({ check }) {
    const stale = generatedFiles().filter(({ path, text }) => read(path) !== text)
    if (check) refuseStale(stale)
    else stale.forEach(update)
  },
})

interface GeneratedFile {
  /** Relative to the repository. */
  readonly path: string
  /** The text that it should have. */
  readonly text: string
}

function generatedFiles(): GeneratedFile[] {
  const schemas = Object.entries(buildJsonSchemas()).map(([path, text]) => ({ path, text }))
  return [...actionFolders(ROOT).map(readmeOf), ...schemas]
}

function readmeOf(folder: string): GeneratedFile {
  const path = join(folder, 'README.md')
  return { path, text: replaceActionTables(read(path) ?? '', read(join(folder, 'action.yml')) ?? '') }
}

function update({ path, text }: GeneratedFile): void {
  mkdirSync(dirname(join(ROOT, path)), { recursive: true })
  writeFileSync(join(ROOT, path), text)
  process.stdout.write(`updated ${path}\n`)
}

function refuseStale(stale: readonly GeneratedFile[]): void {
  if (stale.length === 0) return
  const files = stale.map(({ path }) => path).join(', ')
  process.stderr.write(`Out of date: ${files}. Run \`npm run docs\`.\n`)
  process.exitCode = 1
}

function read(path: string): string | undefined {
  return existsSync(join(ROOT, path)) ? readFileSync(join(ROOT, path), 'utf8') : undefined
}
