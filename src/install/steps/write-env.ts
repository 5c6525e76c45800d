import { constants } from 'node:fs'
import { open, readFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
import { seedSettings, verifySettings } from '../../core/env-template.ts'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import type { Log } from '../../core/log.ts'
import { writeNewFile } from '../durable-files.ts'
import { type Layout, type Shelf, settingsPath } from '../layout.ts'
import type { Transaction } from '../transaction.ts'
import { exists } from '../tree-walk.ts'

const MAX_TEMPLATE_BYTES = 256 * 1024

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
 * never changed. Throws DeploymentError `step_failed` when the template is not a regular file or a required key is or
 * ends up empty.
 */
export async function writeEnv(seed: SettingsSeed): Promise<'done' | 'unchanged'> {
  const target = settingsPath(seed.layout, seed.shelf, seed.id)
  if (await exists(target)) {
    verifySettings(await readFile(target, 'utf8'), seed.environment.required, target)
    seed.log.info(`${target} exists and stays as it is.`)
    return 'unchanged'
  }
  const template = await readTemplate(join(seed.layout.root, seed.from), seed.from)
  const settings = seedSettings(template, seed.environment.required, seed.environment.optional, seed.variables)
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

async function readTemplate(path: string, shown: string): Promise<string> {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    try {
      const stat = await file.stat()
      if (!stat.isFile() || stat.size > MAX_TEMPLATE_BYTES)
        throw unusableTemplate(shown, 'is not a regular file of at most 256 KiB')
      return await file.readFile('utf8')
    } finally {
      await file.close()
    }
  } catch (error) {
    if (error instanceof DeploymentError) throw error
    throw unusableTemplate(
      shown,
      errnoOf(error) === 'ENOENT' ? 'is not in the artifact' : `cannot be read (${errnoOf(error)})`,
    )
  }
}

function unusableTemplate(path: string, what: string): DeploymentError {
  return new DeploymentError(
    'step_failed',
    `The settings template ${path} ${what}: correct "from" in the plan, or the artifact.`,
  )
}
