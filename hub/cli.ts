#!/usr/bin/env node
import type { Command } from './commands/command.ts'
import { keys } from './commands/keys.ts'
import { publish } from './commands/publish.ts'
import { serve } from './commands/serve.ts'
import { versions, yank } from './commands/versions.ts'
import { UsageError } from './errors.ts'

const COMMANDS: Readonly<Record<string, Command>> = { serve, publish, keys, yank, versions }
const HELP = new Set(['--help', '-h'])

process.exitCode = await main(process.argv.slice(2))

/** The exit code: 0, or 2 for a command line that is not understood, or 1 for whatever else went wrong. */
async function main(args: string[]): Promise<number> {
  try {
    await runCommand(args)
    return 0
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error))
    return error instanceof UsageError ? 2 : 1
  }
}

async function runCommand(args: string[]): Promise<void> {
  const [name = 'serve', ...rest] = args
  if (HELP.has(name)) return console.log(overview())
  if (name.startsWith('-')) return runCommand(['serve', ...args])
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined
  if (command === undefined) throw new UsageError(`There is no command ${JSON.stringify(name)}; --help lists them.`)
  if (rest.some(argument => HELP.has(argument))) return console.log(command.usage)
  await command.run(rest)
}

function overview(): string {
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(10)}${summary}`)
  return `npm run hub -- COMMAND [options]\n\n${lines.join('\n')}\n\n"COMMAND --help" tells more.`
}
