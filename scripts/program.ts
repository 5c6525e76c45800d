import type { ParseArgsOptionDescriptor, ParseArgsOptionsConfig, parseArgs } from 'node:util'
import { asksForHelp, parseCommandLine } from '../hub/commands/command-line.ts'
import { HubError, UsageError } from '../hub/errors.ts'
import { DeployError } from '../src/core/errors.ts'

/** An option with its line in the usage text. */
export interface ProgramOption extends ParseArgsOptionDescriptor {
  /** The placeholder for its value in the usage text. */
  readonly value?: string
  /** Its purpose. Further lines are aligned with the first. */
  readonly help: string
}

/** A program that `npm run` or node starts. */
export interface Program<T extends Readonly<Record<string, ProgramOption>>> {
  /** The command up to its options, for example `npm run demo`. */
  readonly name: string
  /** Its purpose in sentences; lines are printed as they are. */
  readonly purpose: string
  readonly options: T
  /** The placeholder for the only positional argument, if the program takes one. */
  readonly argument?: string
  /** The text after the options in the usage text. */
  readonly notes?: string
  run(values: OptionValues<T>, argument?: string): Promise<void>
}

type OptionValues<T extends ParseArgsOptionsConfig> = ReturnType<typeof parseArgs<{ options: T }>>['values']

/**
 * Runs a program with the arguments of this process. `--help` and `-h` print its usage text. For a wrong command line,
 * prints the message and exits with 2. For an expected failure, prints the message and exits with 1. Any other failure
 * is a defect: prints its stack and exits with 1.
 */
export async function runProgram<T extends Readonly<Record<string, ProgramOption>>>(
  program: Program<T>,
): Promise<void> {
  const args = process.argv.slice(2)
  if (asksForHelp(args)) return void process.stdout.write(usageText(program))
  // If the reader of the output ends first, the program still cleans up.
  process.stdout.on('error', () => {})
  try {
    const { values, positionals } = parseCommandLine(args, program.options, program.argument === undefined ? 0 : 1)
    await program.run(values as OptionValues<T>, positionals[0])
  } catch (error) {
    process.stderr.write(`${describeFailure(error)}\n`)
    process.exitCode = error instanceof UsageError ? 2 : 1
  }
}

function usageText({ name, purpose, options, argument, notes }: Program<Record<string, ProgramOption>>): string {
  const lines = [...Object.entries(options).map(optionUsage), ['-h, --help', 'print this'] as const]
  const width = Math.max(...lines.map(([left]) => left.length)) + 4
  const table = lines.map(([left, help]) => `  ${left}`.padEnd(width) + help.replaceAll('\n', `\n${' '.repeat(width)}`))
  const synopsis = [`Usage: ${name} -- [options]`, ...(argument === undefined ? [] : [argument])].join(' ')
  return `${[synopsis, purpose, '', ...table, ...(notes === undefined ? [] : ['', notes])].join('\n')}\n`
}

function optionUsage([name, { value, help }]: [string, ProgramOption]): readonly [string, string] {
  return [value === undefined ? `--${name}` : `--${name} ${value}`, help]
}

/** Returns the message of a failure that the program's user can cause, and the stack of any other failure. */
function describeFailure(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const isExpected = [UsageError, HubError, DeployError].some(type => error instanceof type) || 'syscall' in error
  return isExpected ? error.message : (error.stack ?? error.message)
}
