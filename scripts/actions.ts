import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parse } from 'yaml'

interface ActionInput {
  description: string
  required?: boolean
  default?: string
}

interface ActionFile {
  inputs?: Record<string, ActionInput>
  outputs?: Record<string, { description: string }>
}

/**
 * Fills the tables of an action's README: the inputs between `<!-- inputs -->` and `<!-- /inputs -->`, and the outputs
 * between `<!-- outputs -->` and `<!-- /outputs -->`. Throws if a marker is missing.
 */
export function replaceActionTables(readme: string, actionYaml: string): string {
  const action: ActionFile = parse(actionYaml)
  const withInputs = replaceBetween(readme, 'inputs', inputsTable(action))
  return replaceBetween(withInputs, 'outputs', outputsTable(action))
}

function inputsTable({ inputs = {} }: ActionFile): string {
  const rows = Object.entries(inputs).map(([name, input]) => [code(name), cell(input.description), defaultCell(input)])
  return table(['Input', 'What it is', 'Default'], rows)
}

function outputsTable({ outputs = {} }: ActionFile): string {
  const rows = Object.entries(outputs).map(([name, output]) => [code(name), cell(output.description)])
  return table(['Output', 'What it is'], rows)
}

function defaultCell(input: ActionInput): string {
  if (input.required === true) return '**required**'
  if (input.default === undefined || input.default === '') return ''
  return String(input.default).trim().split('\n').map(code).join(', ')
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map(cells => `| ${cells.join(' | ')} |`).join('\n')
}

function code(text: string): string {
  return `\`${cell(text)}\``
}

function cell(text: string): string {
  return text.trim().replace(/\s+/g, ' ').replaceAll('|', '\\|')
}

function replaceBetween(text: string, name: string, content: string): string {
  const [open, close] = [`<!-- ${name} -->`, `<!-- /${name} -->`]
  const start = text.indexOf(open)
  const end = text.indexOf(close, start)
  if (start < 0 || end < 0) throw new Error(`The README has no ${open} followed by ${close}: add both markers.`)
  return `${text.slice(0, start + open.length)}\n${content}\n${text.slice(end)}`
}

interface ActionDefinition {
  readonly inputs: Readonly<Record<string, { readonly required?: boolean }>>
  readonly runs: { readonly main: string; readonly post?: string }
}

/**
 * Returns the answer to `--help` of each file of `dist/` that an action.yml starts, by the file's name. Each answer
 * says that the file is for a runner, lists the required inputs, and names the alternative in a terminal.
 */
export function entryUsages(repository: string): Map<string, string> {
  return new Map(actionFolders(repository).flatMap(folder => usagesOf(repository, join(folder, 'action.yml'))))
}

function usagesOf(repository: string, path: string): [string, string][] {
  const { inputs, runs }: ActionDefinition = parse(readFileSync(join(repository, path), 'utf8'))
  const required = Object.entries(inputs).flatMap(([name, { required }]) => (required ? [variableOf(name)] : []))
  const main = basename(runs.main)
  const usage = (subject: string): string => `${subject} of a GitHub Action. A self-hosted runner starts it.
Its inputs are environment variables; ${path} lists them. Required: ${required.join(', ') || 'this depends on the other inputs'}.
To deploy your own plugin, service or project on this machine: npm run try -- --from FOLDER`
  const post = runs.post === undefined ? [] : [basename(runs.post)]
  return [
    [main, usage(`${main} is the program`)],
    ...post.map((name): [string, string] => [name, usage(`${name} is the post step`)]),
  ]
}

function variableOf(input: string): string {
  return `INPUT_${input.toUpperCase()}`
}

/** The folders that contain an action.yml, relative to the repository, with `.` first. */
export function actionFolders(repository: string): string[] {
  const folders = readdirSync(repository, { withFileTypes: true }).filter(entry => entry.isDirectory())
  return ['.', ...folders.map(({ name }) => name)].filter(folder => existsSync(join(repository, folder, 'action.yml')))
}

/**
 * Builds the text that `loadBundle` compiles as it is: a function, all in ASCII, whose code begins on its first line.
 * If any character were not ASCII, each character would take two bytes in memory. If the function's head were added
 * only when the bundle is loaded, memory would hold a second copy of the text. Throws for a character outside ASCII in
 * a raw string or after a backslash, because escaping it there would change the meaning.
 */
export function bundleText(code: string): string {
  if (/String\.raw`[^`]*[^\0-\x7f]|\\[^\0-\x7f]/.test(code))
    throw new Error(
      'A raw string, and the character after a backslash, must be ASCII: an escape would change the meaning.',
    )
  const ascii = code.replace(/[^\0-\x7f]/g, unit => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
  return `(function (module, exports, require, __dirname) {${ascii}\n})\n`
}
