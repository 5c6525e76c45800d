import { UsageError } from '../errors.ts'
import type { Command } from './command.ts'
import { asksForHelp } from './command-line.ts'

/** A group of commands. You type the group's name before a command's name. */
export interface CommandGroup {
  readonly name: string
  readonly summary: string
  readonly commands: Readonly<Record<string, Command | CommandGroup>>
}

/**
 * Runs the command that the first arguments name, or prints the help of that command or of a group. Throws UsageError
 * if the command is missing or unknown, and as the command does.
 */
export async function runGroup(group: CommandGroup, [name, ...args]: string[]): Promise<void> {
  if (name !== undefined && asksForHelp([name])) return console.log(overview(group))
  const command = name !== undefined && Object.hasOwn(group.commands, name) ? group.commands[name] : undefined
  if (command === undefined) throw new UsageError(describeUnknown(group, name))
  if ('commands' in command) return await runGroup(command, args)
  if (asksForHelp(args)) return console.log(`Usage: ${command.usage}`)
  await command.run(args)
}

function overview({ name, commands }: CommandGroup): string {
  const lines = Object.entries(commands).map(([command, { summary }]) => `  ${command.padEnd(12)}${summary}`)
  return `Usage: ${name} COMMAND [options]\n\n${lines.join('\n')}\n\n"COMMAND --help" explains each of them.`
}

function describeUnknown(group: CommandGroup, name: string | undefined): string {
  const problem = name === undefined ? 'The command is missing' : `There is no command ${JSON.stringify(name)}`
  return `${problem}: "${group.name}" has ${Object.keys(group.commands).join(', ')}.`
}
