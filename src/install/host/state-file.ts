import { constants } from 'node:fs'
import { z } from 'zod/mini'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { cleanForeignText } from '../../core/text.ts'
import { toHostError } from '../files/errors.ts'
import { readSmallFileSync } from '../files/open.ts'

/** Far more than years of deployments write, and far less than what exhausts the memory of a small host. */
export const MAX_STATE_BYTES = 64 * 1024 * 1024

/** The codes for a symlink, and for a socket. */
const NOT_A_FILE: ReadonlySet<string> = new Set(['ELOOP', 'ENXIO'])

/**
 * Returns the text of one of our own files; undefined if there is none. Follows no symlink and never waits for a pipe.
 * Throws the system's error as `toHostError` returns it, or DeploymentError `host_not_writable` if the path is not a
 * regular file of at most 64 MiB. Both messages contain the path.
 */
export function readStateFileSync(path: string): string | undefined {
  try {
    const text = readSmallFileSync(path, MAX_STATE_BYTES, constants.O_NOFOLLOW)
    if (text !== undefined) return text
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return undefined
    if (!NOT_A_FILE.has(errnoOf(error) ?? '')) throw toHostError(error, `reading ${path}`)
  }
  throw new DeploymentError(
    'host_not_writable',
    `${path} must be a regular file of at most 64 MiB, because this action keeps records in it. Move it away, restore the file if you have a copy, and run again.`,
  )
}

/** Describes on one line what is wrong with a state file, and where. */
export function describeDamage(error: unknown): string {
  if (!(error instanceof z.core.$ZodError)) return 'it is not JSON'
  const issue = error.issues[0]
  return cleanForeignText(`${issue?.path.join('.') || 'its content'} ${describeIssue(issue)}`, 300)
}

/** Replaces the default message of the schema library, which an issue has if the schema sets no message. */
function describeIssue(issue: z.core.$ZodIssue | undefined): string {
  if (issue?.message !== 'Invalid input') return issue?.message ?? ''
  if (issue.code === 'invalid_type') return `must be of type ${issue.expected}`
  if (issue.code === 'invalid_value') return `must be ${issue.values.join(' or ')}`
  return 'has an unexpected form'
}
