#!/usr/bin/env node
import { type CommandGroup, runGroup } from './commands/command-group.ts'
import { keys } from './commands/keys.ts'
import { project } from './commands/project/project.ts'
import { prune } from './commands/prune.ts'
import { publish } from './commands/publish.ts'
import { serve } from './commands/serve.ts'
import { versions, yank } from './commands/versions.ts'
import { UsageError } from './errors.ts'

const HUB: CommandGroup = {
  name: 'npm run hub --',
  summary: 'runs the reference hub',
  commands: { serve, publish, keys, yank, versions, project, prune },
}
const HELP = new Set(['--help', '-h'])

process.exitCode = await main(process.argv.slice(2))

/** Returns the exit code: 0 for success, 2 for a wrong command line, 1 for any other error. */
async function main(args: string[]): Promise<number> {
  try {
    await runGroup(HUB, withDefaultCommand(args))
    return 0
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error))
    return error instanceof UsageError ? 2 : 1
  }
}

/** Options without a command are for `serve`. */
function withDefaultCommand(args: string[]): string[] {
  const [first = '--'] = args
  return first.startsWith('-') && !HELP.has(first) ? ['serve', ...args] : args
}
