import { constants } from 'node:fs'
import { join, relative } from 'node:path'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { MAX_SMALL_FILE_BYTES } from '../../core/limits.ts'
import type { Log } from '../../core/log.ts'
import { seedSettings, verifySettings } from '../../core/plan/env-template.ts'
import { writeNewFile } from '../files/durable-files.ts'
import { readSmallFileSync } from '../files/read-small-file.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { type Layout, type Shelf, settingsPath } from '../host/layout.ts'
import type { Transaction } from '../transaction/transaction.ts'

const NOT_A_SMALL_FILE = `is not a regular file of at most ${MAX_SMALL_FILE_BYTES} bytes`

export interface SettingsSeed {
  layout: Layout
  transaction: Transaction
  log: Log
  shelf: Shelf
  id: string
  /** The template's path below the project root (`plugins/<id>/...`): a regular file of the installed artifact. */
  from: string
  environment: { required: readonly string[]; optional: readonly string[] }
  /** The step's own variables. */
  variables: Readonly<Record<string, string | undefined>>
  /** A folder of ours on the same file system. */
  stagingFolder: string
}

/**
 * Seeds `<shelf>/<id>.env` (0600 from its first byte, in place whole or not at all) from a template; an existing file is
 * never changed, only read. Throws DeploymentError `step_failed` when the template or what is in the place is not a
 * regular file, or a required key is or ends up empty.
 */
export async function writeEnv(seed: SettingsSeed): Promise<'done' | 'unchanged'> {
  const target = settingsPath(seed.layout, seed)
  if (pathExistsSync(target)) {
    verifySettings({ path: target, text: readSettings(target) }, seed.environment.required)
    seed.log.info(`${target} exists and stays as it is.`)
    return 'unchanged'
  }
  const template = readTemplate(join(seed.layout.root, seed.from), seed.from)
  const settings = seedSettings(template, seed.environment, seed.variables)
  const staged = join(seed.stagingFolder, `${seed.id}.env`)
  await writeNewFile(staged, settings.text)
  await seed.transaction.apply({
    type: 'create_file',
    staged: relative(seed.layout.root, staged),
    path: relative(seed.layout.root, target),
  })
  seed.log.info(`${target} written; from the step's environment: ${settings.fromEnvironment.join(', ') || 'nothing'}.`)
  return 'done'
}

/** The host's own settings may be a link to where an operator keeps them. */
function readSettings(path: string): string {
  try {
    const text = readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
    if (text !== undefined) return text
  } catch (error) {
    const found = errnoOf(error) === 'ENOENT' ? 'is a link to nothing' : `cannot be read (${errnoOf(error)})`
    throw unusable(`The settings ${path}`, found, 'repair or remove them')
  }
  throw unusable(`The settings ${path}`, NOT_A_SMALL_FILE, 'repair or remove them')
}

function readTemplate(path: string, shown: string): string {
  const remedy = 'correct "from" in the plan, or the artifact'
  try {
    const text = readSmallFileSync(path, MAX_SMALL_FILE_BYTES, constants.O_NOFOLLOW)
    if (text !== undefined) return text
  } catch (error) {
    const found = errnoOf(error) === 'ENOENT' ? 'is not in the artifact' : `cannot be read (${errnoOf(error)})`
    throw unusable(`The settings template ${shown}`, found, remedy)
  }
  throw unusable(`The settings template ${shown}`, NOT_A_SMALL_FILE, remedy)
}

function unusable(what: string, found: string, remedy: string): DeploymentError {
  return new DeploymentError('step_failed', `${what} ${found}: ${remedy}.`)
}
