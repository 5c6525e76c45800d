import { hash } from 'node:crypto'
import { constants } from 'node:fs'
import { join, relative } from 'node:path'
import { DeploymentError, errnoOf } from '../../../core/errors.ts'
import { listNames } from '../../../core/foreign-text.ts'
import { MAX_SMALL_FILE_BYTES } from '../../../core/limits.ts'
import { seedSettings, verifySettings } from '../../../core/plan/env-template.ts'
import type { Settings } from '../../../core/plan/settings.ts'
import { writeNewFile } from '../../files/durable-files.ts'
import { readSmallBytesSync } from '../../files/read-small-file.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { placePath, settingsPath } from '../../host/layout.ts'
import { openTreeRecord } from '../../host/trees/record/read-tree-record.ts'
import type { TreeIdentity } from '../../host/trees/record/tree-identity.ts'
import type { Deployment } from '../../transaction/context.ts'
import type { StepContext } from '../step-context.ts'
import type { StepResult } from '../step-entry.ts'
import { INJECTED, type SettingsOwner, seedInjectedEnv } from './injected-env.ts'
import { NOT_A_SMALL_FILE, readSettings } from './settings-file.ts'

/**
 * Seeds `<directory>/<id>.env` from a template in this part or in another part on the same shelf. The template's path,
 * `from`, begins with the name of that part. The file has mode 0600 from its first byte, and is written completely or
 * not at all. An existing file is only read. Also seeds the settings that a host framework injects, as
 * `seedInjectedEnv` does. Throws DeploymentError `step_failed` if the template or the existing settings cannot be read
 * as a small regular file, or if the template's bytes are not the recorded ones. Also throws as `seedSettings`,
 * `verifySettings` and `seedInjectedEnv` do, and file system errors.
 */
export async function writeEnv(
  context: Omit<StepContext, 'order'>,
  part: SettingsOwner,
  from: string,
): Promise<StepResult> {
  const isThere = pathExistsSync(settingsPath(context.deployment.layout, part))
  const text = isThere ? readExisting(context.deployment, part) : await seed(context, part, from)
  const isInjected = await seedInjectedEnv(context, part, text)
  return resultOf(part, { isThere, isInjected })
}

function resultOf(
  part: SettingsOwner,
  { isThere, isInjected }: { readonly isThere: boolean; readonly isInjected: boolean },
): StepResult {
  const own = `${part.id}.env`
  const injected = `${placePath(part)}/${INJECTED}`
  if (isThere && !isInjected) return { status: 'unchanged', did: `${own} already exists and was left unchanged` }
  if (isThere) return { status: 'done', did: `${own} already exists and was left unchanged; ${injected} written` }
  return { status: 'done', did: `${isInjected ? `${own} and ${injected}` : own} written` }
}

function readExisting({ layout, tools, request }: Deployment, part: SettingsOwner): string {
  const path = settingsPath(layout, part)
  const text = readSettings(path)
  verifySettings({ path, text }, part.environment.required)
  const unused = request.settings.size > 0 ? ', so the settings given as input are not used' : ''
  tools.log.info(`${path} already exists and is left unchanged${unused}.`)
  return text
}

/** Creates the settings from their template, and returns their text. */
async function seed(
  { deployment, transaction, stagingFolder, results }: Omit<StepContext, 'order'>,
  part: SettingsOwner,
  from: string,
): Promise<string> {
  const { layout, tools, request, record } = deployment
  const path = templatePath(part, from)
  const template = readTemplate(layout.root, path)
  const [shelf, id, ...inner] = from.split('/')
  const tree = results.get(`${shelf}/${id}`)?.tree
  if (tree !== undefined) verifyTemplate(deployment, tree, { from: path, inner: inner.join('/'), template })
  const isRollback = record.facts.rollback_of !== undefined
  const given = isRollback ? undefined : request.settings
  const settings = seedSettings(template.toString('utf8'), part.environment, given)
  const target = settingsPath(layout, part)
  const staged = join(stagingFolder, `${part.id}.env`)
  await writeNewFile(staged, settings.text)
  const paths = { staged: relative(layout.root, staged), path: relative(layout.root, target) }
  await transaction.apply([{ type: 'create_file', ...paths }])
  tools.log.info(`${target} was written from its template${describeUse(settings.given, request.settings)}`)
  return settings.text
}

/** Replaces the first folder of the plan's path with the part's directory, which may have another name on this host. */
function templatePath({ directory }: SettingsOwner, from: string): string {
  return [directory, ...from.split('/').slice(1)].join('/')
}

/** Verifies the installed template again, because a service can write into its own directory at any time. */
function verifyTemplate(
  { layout }: Deployment,
  tree: TreeIdentity,
  { from, inner, template }: { readonly from: string; readonly inner: string; readonly template: Buffer },
): void {
  const recorded = openTreeRecord(layout, tree)?.(inner)
  if (recorded?.sha256 === hash('sha256', template)) return
  throw new DeploymentError(
    'step_failed',
    `The settings template ${join(layout.root, from)} was changed on this host after it was verified: find out what changed it, then run again.`,
  )
}

/** Names the operator's settings that were used, and those that were not. */
function describeUse(used: readonly string[], settings: Settings): string {
  const unused = [...settings.keys()].filter(name => !used.includes(name))
  const named = used.length > 0 ? `, with ${listNames(used)} from the settings given as input` : ''
  if (unused.length === 0) return `${named}.`
  return `${named}. Not used: ${listNames(unused)}. A setting is used only if it is not empty, and if the template or the part declares it.`
}

function readTemplate(root: string, from: string): Buffer {
  try {
    const bytes = readSmallBytesSync(join(root, from), MAX_SMALL_FILE_BYTES, constants.O_NOFOLLOW)
    if (bytes !== undefined) return bytes
  } catch (error) {
    const found = errnoOf(error) === 'ENOENT' ? 'is missing' : `cannot be read (${errnoOf(error)})`
    throw unusableTemplate(from, found)
  }
  throw unusableTemplate(from, NOT_A_SMALL_FILE)
}

function unusableTemplate(from: string, found: string): DeploymentError {
  const remedy = 'check the installed file, "from" in the plan, and the artifact'
  return new DeploymentError('step_failed', `The settings template ${from} ${found}: ${remedy}.`)
}
