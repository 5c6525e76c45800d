import { join } from 'node:path'
import { HubError } from '../errors.ts'
import { DATABASE_FILE } from '../store.ts'
import { fileProblem } from './file-problem.ts'

export function damagedDatabase(dataDir: string, error: unknown): HubError {
  return new HubError(
    500,
    `The hub's database ${join(dataDir, DATABASE_FILE)} is damaged (${(error as Error).message.replace(/\s+/g, ' ')}), and no backup was written: restore the last good backup.`,
  )
}

export function damaged(sha256: string): HubError {
  return new HubError(
    500,
    `The hub's file for the artifact ${sha256} is missing or damaged, and no backup was written: publish the same bytes again, or copy artifacts/${sha256} from an earlier backup into the data folder. A yanked version cannot be published again. "npm run hub -- versions" and "npm run hub -- project versions" list each version with its SHA-256.`,
  )
}

export function alreadyThere(file: string): HubError {
  return new HubError(409, `${file} already exists, and a backup never replaces a file: name a new file with --to.`)
}

export function noKey(problem: string): HubError {
  return new HubError(
    500,
    `The key of all sealed projects is missing, unreadable or damaged (${problem}), and no backup was written: restore that file, or correct its permissions.`,
  )
}

/**
 * The refusal for a backup that cannot be written, or for a file of the hub that cannot be read. The message names that
 * file. Returns any other error unchanged.
 */
export function cannotWrite(file: string, error: unknown): unknown {
  const problem = fileProblem(error, file)
  if (problem === undefined) return error
  return new HubError(
    400,
    `The backup ${file} cannot be written (${problem}): free some space, correct the permissions, or name a file in another folder.`,
  )
}
