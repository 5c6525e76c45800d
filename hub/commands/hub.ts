import { UsageError } from '../errors.ts'
import { type CommandGroup, runGroup } from './command.ts'
import { asksForHelp, requireOptionsFromNpm } from './command-line.ts'
import { keys } from './keys.ts'
import { backup, prune, restore } from './maintenance.ts'
import { project } from './project.ts'
import { publish } from './publish.ts'
import { SERVE_OPTIONS, serve } from './serve.ts'
import { hold, release, versions, yank } from './versions.ts'

/** All commands of the hub. */
export const HUB: CommandGroup = {
  name: 'npm run hub --',
  summary: 'runs the reference hub',
  commands: { serve, publish, keys, hold, release, yank, versions, project, prune, backup, restore },
}

/** Runs a command line. Returns the exit code: 0 for success, 2 for a wrong command line, 1 for any other error. */
export async function runCommandLine(args: string[]): Promise<number> {
  try {
    await runGroup(HUB, withDefaultCommand(args))
    return 0
  } catch (error) {
    console.error(error instanceof Error ? error.message : String(error))
    return error instanceof UsageError ? 2 : 1
  }
}

/** Options without a command are for `serve`. Without `--`, npm keeps the options and passes on only their values. */
function withDefaultCommand(args: string[]): string[] {
  const [first = '--'] = args
  if (first.startsWith('-')) return asksForHelp([first]) ? args : ['serve', ...args]
  if (!Object.hasOwn(HUB.commands, first)) requireOptionsFromNpm(Object.keys(SERVE_OPTIONS))
  return args
}
