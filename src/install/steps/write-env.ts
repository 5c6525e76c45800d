import { constants } from 'node:fs'
import { join, relative } from 'node:path'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { MAX_SMALL_FILE_BYTES } from '../../core/limits.ts'
import { seedSettings, verifySettings } from '../../core/plan/env-template.ts'
import { writeNewFile } from '../files/durable-files.ts'
import { readSmallFileSync } from '../files/read-small-file.ts'
import { pathExistsSync } from '../files/tree-walk.ts'
import { settingsPath } from '../host/layout.ts'
import type { Part } from './part.ts'
import type { StepContext } from './step-context.ts'

const NOT_A_SMALL_FILE = `is not a regular file of at most ${MAX_SMALL_FILE_BYTES} bytes`

/**
 * Seeds `<shelf>/<id>.env` (0600 from its first byte, written whole or not at all) from a template of the installed
 * artifact, whose path `from` is relative to the project root; only reads a file that exists. Throws DeploymentError
 * `step_failed` when the template or the existing settings are not a regular file, or a required key is or ends up
 * empty.
 */
export async function writeEnv(
  { deployment, transaction, stagingFolder }: Omit<StepContext, 'order' | 'results'>,
  part: Pick<Part, 'shelf' | 'id' | 'environment'>,
  from: string,
): Promise<'done' | 'unchanged'> {
  const { layout, tools, request } = deployment
  const target = settingsPath(layout, part)
  if (pathExistsSync(target)) {
    verifySettings({ path: target, text: readSettings(target) }, part.environment.required)
    tools.log.info(`${target} exists and stays unchanged.`)
    return 'unchanged'
  }
  const template = readTemplate(layout.root, from)
  const settings = seedSettings(template, part.environment, request.settings)
  const staged = join(stagingFolder, `${part.id}.env`)
  await writeNewFile(staged, settings.text)
  await transaction.apply({
    type: 'create_file',
    staged: relative(layout.root, staged),
    path: relative(layout.root, target),
  })
  tools.log.info(`${target} written; from the input settings: ${settings.given.join(', ') || 'nothing'}.`)
  return 'done'
}

/** The host's own settings may be a link to another file of the operator. */
function readSettings(path: string): string {
  try {
    const text = readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
    if (text !== undefined) return text
  } catch (error) {
    const found = errnoOf(error) === 'ENOENT' ? 'is a link to nothing' : `cannot be read (${errnoOf(error)})`
    throw unusableSettings(path, found)
  }
  throw unusableSettings(path, NOT_A_SMALL_FILE)
}

function readTemplate(root: string, from: string): string {
  try {
    const text = readSmallFileSync(join(root, from), MAX_SMALL_FILE_BYTES, constants.O_NOFOLLOW)
    if (text !== undefined) return text
  } catch (error) {
    const found = errnoOf(error) === 'ENOENT' ? 'is not in the artifact' : `cannot be read (${errnoOf(error)})`
    throw unusableTemplate(from, found)
  }
  throw unusableTemplate(from, NOT_A_SMALL_FILE)
}

function unusableSettings(path: string, found: string): DeploymentError {
  return new DeploymentError('step_failed', `The settings ${path} ${found}: repair or remove them.`)
}

function unusableTemplate(from: string, found: string): DeploymentError {
  const remedy = 'correct "from" in the plan, or the artifact'
  return new DeploymentError('step_failed', `The settings template ${from} ${found}: ${remedy}.`)
}
