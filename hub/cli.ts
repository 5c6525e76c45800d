#!/usr/bin/env node
import { runCommandLine } from './commands/hub.ts'

// npm starts programs in the folder of package.json, but a user's paths are relative to the folder of the user's shell.
if (process.env['npm_lifecycle_event'] === 'hub') process.chdir(process.env['INIT_CWD'] ?? '.')
process.exitCode = await runCommandLine(process.argv.slice(2))
