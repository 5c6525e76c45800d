import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parse } from 'yaml'
import { actionFolders } from './action-folders.ts'

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
