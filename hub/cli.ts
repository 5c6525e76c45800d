#!/usr/bin/env node
import { runCommandLine } from './commands/hub.ts'

process.exitCode = await runCommandLine(process.argv.slice(2))
