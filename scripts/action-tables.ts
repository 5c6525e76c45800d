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
