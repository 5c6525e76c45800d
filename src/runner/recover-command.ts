import { statSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { z } from 'zod/mini'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { Log } from '../core/log.ts'
import { lockTimeoutSchema } from './inputs/host-inputs.ts'
import { projectRootSchema } from './inputs/input-schemas.ts'

export const USAGE = `Usage: node recover.js --project-root DIR [options]

Recovers the host after a power cut, a crash or a kill ended a deployment. If the deployment ended before its commit,
restores the old version and its services, and checks their health. If it ended after its commit, keeps the new version.
Writes the deployment's local report. Deploys nothing.

  --project-root DIR            the directory that contains plugins/, extensions/ and .hub-deploy/
  --lock-timeout-seconds N      how long to wait for a deployment that is still running (default: 60)
  --allow-shared-root           accept a project root that other users own or can write to
  --help                        print this

Exit code: 0 if the host is consistent, even if there was nothing to recover or nothing was ever deployed; 1 if the host
could not be recovered, or its record of what is installed is damaged; 2 if the arguments cannot be used; and 75 if a
deployment is still running on the host.
`

export interface RecoverCommand {
  readonly projectRoot: string
  readonly allowSharedRoot: boolean
  readonly lockTimeoutMs: number
}

const OPTIONS = {
  'project-root': { type: 'string' },
  'lock-timeout-seconds': { type: 'string', default: '60' },
  'allow-shared-root': { type: 'boolean', default: false },
  help: { type: 'boolean', default: false },
} as const

/** Parses the arguments. Throws an Error that gives the reason if they cannot be used. */
export function parseRecoverCommand(args: readonly string[]): RecoverCommand | 'help' {
  const { values } = parseArgs({ args: [...args], options: OPTIONS, strict: true, allowPositionals: false })
  if (values.help) return 'help'
  const root = values['project-root']
  if (root === undefined) throw new Error('--project-root is missing: name the directory that contains plugins/')
  return {
    projectRoot: requireDirectory(parseOption('project-root', projectRootSchema, root)),
    allowSharedRoot: values['allow-shared-root'],
    lockTimeoutMs: parseOption('lock-timeout-seconds', lockTimeoutSchema, values['lock-timeout-seconds']),
  }
}

/** A log without groups: warnings and errors go to stderr, everything else goes to stdout. */
export function createConsoleLog(): Log {
  const line = (text: string): string => `${cleanForeignText(text, Number.POSITIVE_INFINITY)}\n`
  return {
    group: title => void process.stdout.write(line(title)),
    did: text => void process.stdout.write(line(text)),
    end: () => {},
    info: text => void process.stdout.write(line(text)),
    notice: text => void process.stdout.write(line(text)),
    warning: text => void process.stderr.write(line(`Warning: ${text}`)),
    error: text => void process.stderr.write(line(`Error: ${text}`)),
  }
}

function parseOption<Value>(name: string, schema: z.ZodMiniType<Value>, text: string): Value {
  const parsed = z.safeParse(schema, text)
  if (parsed.success) return parsed.data
  throw new Error(`--${name} ${parsed.error.issues[0]?.message ?? 'is not valid'}, but found ${JSON.stringify(text)}`)
}

/**
 * An absent directory must not pass as "nothing to recover", because that would hide a typo, or a disk that is not
 * mounted.
 */
function requireDirectory(path: string): string {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return path
  throw new Error(`--project-root ${path} is not a directory: correct the path, or mount its disk first`)
}
