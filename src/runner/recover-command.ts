import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { z } from 'zod/mini'
import type { SourceFile } from '../core/document/source-file.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { OPERATOR_YAML_LIMITS } from '../core/limits.ts'
import type { Log } from '../core/log.ts'
import { parseHostConfig } from '../core/plan/host-config.ts'
import { walkPath } from '../install/host/ownership/path-walk.ts'
import { nameUser, otherWriters } from '../install/host/ownership/permissions.ts'
import { leadsIntoRoot, readStart } from './inputs/file-input.ts'
import { lockTimeoutSchema } from './inputs/host-inputs.ts'
import { projectRootSchema } from './inputs/input-schemas.ts'

export const USAGE = `Usage: node recover.js --project-root DIR [options]

Recovers the host after a power cut, a crash or a kill ended a deployment. If the deployment ended before its commit,
restores the old version and its services, and checks their health. If it ended after its commit, keeps the new version.
Writes the deployment's local report. Deploys nothing.

  --project-root DIR            the directory that contains plugins/, extensions/ and .hub-deploy/
  --host-config FILE            the host config with the services to restart and to check. Only root and this user may be
                                able to write this file and the directories above it, and it must not lie below DIR.
                                Without it, only files are restored, and the services that need a restart are named
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
  readonly hostConfig: SourceFile | undefined
  readonly lockTimeoutMs: number
}

const OPTIONS = {
  'project-root': { type: 'string' },
  'host-config': { type: 'string' },
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
  const projectRoot = requireDirectory(parseOption('project-root', projectRootSchema, root))
  const config = values['host-config']
  return {
    projectRoot,
    hostConfig: config === undefined ? undefined : readHostConfigFile(resolve(config), projectRoot),
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
 * Reads a host config that only root and this user can have written. Throws an Error that gives the reason if somebody
 * else could have written it, or if it cannot be used.
 */
function readHostConfigFile(path: string, projectRoot: string): SourceFile {
  const option = `--host-config ${path}`
  if (leadsIntoRoot(path, projectRoot)) throw new Error(`${option} lies below the project root: keep it elsewhere`)
  const { way, end } = walkPath(path)
  for (const { path: at, stat } of [...way, ...(end === undefined ? [] : [end])]) {
    const isForeign = stat.uid !== 0 && stat.uid !== process.getuid?.()
    const writers = [...(isForeign ? [nameUser(stat.uid)] : []), ...(stat.isSymbolicLink() ? [] : otherWriters(stat))]
    if (writers.length > 0)
      throw new Error(
        `${option} must be where only root and this user can write, but ${at} can be changed by ${writers.join(' and ')}`,
      )
  }
  try {
    const file = { path, text: readStart(path, OPERATOR_YAML_LIMITS.bytes) }
    parseHostConfig(file.text, path)
    return file
  } catch (error) {
    throw new Error(`${option} cannot be used: ${error instanceof Error ? error.message : String(error)}`)
  }
}

/**
 * An absent directory must not pass as "nothing to recover", because that would hide a typo, or a disk that is not
 * mounted.
 */
function requireDirectory(path: string): string {
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory()) return path
  throw new Error(`--project-root ${path} is not a directory: correct the path, or mount its disk first`)
}
