import { hash } from 'node:crypto'
import { constants } from 'node:fs'
import { join, relative } from 'node:path'
import { DeploymentError, errnoOf } from '../../core/errors.ts'
import { MAX_SMALL_FILE_BYTES } from '../../core/identifiers.ts'
import { differingSettings, seedSettings, verifySettings } from '../../core/plan/settings.ts'
import { listNames } from '../../core/text.ts'
import { makePrivateDirectories, writeNewFile } from '../files/durable.ts'
import { readSmallBytesSync, readSmallFileSync } from '../files/open.ts'
import { lstatIfPresentSync, pathExistsSync } from '../files/walk.ts'
import { installPath, type Layout, type Place, placePath, settingsPath, snapshotsPath } from '../host/layout.ts'
import type { Deployment } from '../transaction/record.ts'
import { openTreeRecord, type TreeIdentity } from '../trees/record.ts'
import type { Part, PartEnvironment, StepContext, StepResult } from './context.ts'
import { isCovered, needsPluginSig, readPluginYaml } from './plugin-sig.ts'

/**
 * Seeds `<directory>/<id>.env` from a template in this part or in another part on the same shelf. The template's path,
 * `from`, begins with the name of that part. The file has mode 0600 from its first byte, and is written completely or
 * not at all. An existing file is only read. Also seeds the settings that a host framework injects, as
 * `seedInjectedEnv` does. Throws DeploymentError `step_failed` if the template or the existing settings cannot be read
 * as a small regular file, or if the template's bytes are not the recorded ones. Also throws file system errors.
 */
export async function writeEnv(
  context: Omit<StepContext, 'order'>,
  part: SettingsOwner,
  from: string,
): Promise<StepResult> {
  const isThere = pathExistsSync(settingsPath(context.deployment.layout, part))
  const text = isThere ? readExisting(context.deployment, part) : await seed(context, part, from)
  const isInjected = await seedInjectedEnv(context, part, text)
  return settingsResult(part, { isThere, isInjected })
}

function settingsResult(
  part: SettingsOwner,
  { isThere, isInjected }: { readonly isThere: boolean; readonly isInjected: boolean },
): StepResult {
  const own = `${part.id}.env`
  const injected = `${placePath(part)}/${part.environment.envFile}`
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
  tools.log.info(`${target} was written from its template${describeUse(settings.given)}`)
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

function describeUse(used: readonly string[]): string {
  return used.length > 0 ? `, with ${listNames(used)} from the settings given as input.` : '.'
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

/** A part that has settings. */
type SettingsOwner = Place & { readonly environment: PartEnvironment }

/**
 * Returns the path of the settings that a host framework injects into a plugin (contract 2.1); undefined if it injects
 * none. The file is the host's own, so every version keeps it.
 */
export function injectedEnvPath(layout: Layout, part: SettingsOwner): string | undefined {
  const { envFile } = part.environment
  return envFile === undefined ? undefined : join(installPath(layout, part), envFile)
}

/**
 * Returns the path of the injected settings that a `write_env` step for this part would create: neither the host nor
 * the new tree has such a file yet, and the step may create it. Otherwise undefined.
 */
export function missingInjectedEnv(layout: Layout, part: Part): string | undefined {
  const { envFile } = part.environment
  if (envFile === undefined) return undefined
  const tree = treePathOf(layout, part)
  const sources = [tree, installPath(layout, part), part.leftBehind]
  const isThere = sources.some(folder => folder !== undefined && pathExistsSync(join(folder, envFile)))
  return isThere || isSignedAt(tree, envFile) ? undefined : injectedEnvPath(layout, part)
}

/**
 * Creates, with this text, the settings file that the host framework injects into an installed plugin. Does nothing if
 * the framework injects no settings. The file has mode 0600, and is written completely or not at all. Returns whether
 * the file was created. Never changes an existing file, but warns if the file sets a key to a different value than this
 * text does. If the plugin's signature covers the file, warns instead of creating the file. Throws DeploymentError
 * `step_failed` if the existing settings cannot be read (see `readSettings`) or lack a required key, or if the file has
 * just appeared.
 */
async function seedInjectedEnv(
  { deployment, transaction, stagingFolder }: Pick<StepContext, 'deployment' | 'transaction' | 'stagingFolder'>,
  part: SettingsOwner,
  text: string,
): Promise<boolean> {
  const { layout, tools } = deployment
  const { envFile, required } = part.environment
  const target = injectedEnvPath(layout, part)
  if (envFile === undefined || target === undefined) return false
  if (pathExistsSync(target)) {
    const injected = readSettings(target)
    verifySettings({ path: target, text: injected }, required)
    const differing = differingSettings(text, injected)
    if (differing.length > 0)
      tools.log.warning(
        `${target} sets ${listNames(differing)} to different values than ${settingsPath(layout, part)}, and the host framework reads only ${target}: make the values equal, or remove ${target}, so that the next deployment creates it again.`,
      )
    return false
  }
  if (isSignedAt(installPath(layout, part), envFile)) {
    tools.log.warning(
      `${target}, the only settings that the host framework gives this plugin, was not written. plugin.sig may cover that file, so the host framework could reject the plugin: ask the publisher to move entry_point to a separate directory.`,
    )
    return false
  }
  await makeFolders(deployment, transaction, { part, envFile })
  const folder = join(stagingFolder, 'injected')
  await makePrivateDirectories(folder)
  const staged = join(folder, `${part.id}.env`)
  await writeNewFile(staged, text)
  const paths = { staged: relative(layout.root, staged), path: relative(layout.root, target) }
  await transaction.apply([{ type: 'create_file', ...paths }])
  tools.log.info(
    `${target} was written with the settings of ${settingsPath(layout, part)}, because the host framework injects only the settings in ${target}.`,
  )
  return true
}

/** Creates the folders of the injected settings in the plugin's directory. A rollback removes those that are empty. */
async function makeFolders(
  { layout }: Deployment,
  transaction: StepContext['transaction'],
  { part, envFile }: { readonly part: Place; readonly envFile: string },
): Promise<void> {
  const parts = envFile.split('/').slice(0, -1)
  for (let depth = 1; depth <= parts.length; depth++) {
    const path = [placePath(part), ...parts.slice(0, depth)].join('/')
    const found = lstatIfPresentSync(join(layout.root, path))
    if (found === undefined) await transaction.apply([{ type: 'make_directory', path }])
    else if (!found.isDirectory()) throw unusableSettings(join(layout.root, path), 'would be in a file or symlink')
  }
}

/** Returns the path of a part's new tree before the steps run. */
export function treePathOf(layout: Layout, part: Part): string {
  if (part.intact !== undefined) return installPath(layout, part)
  return part.retained === undefined ? part.staged : join(snapshotsPath(layout, part), part.retained.name)
}

/** True if the signature of the plugin in this tree covers a file. */
function isSignedAt(tree: string, file: string): boolean {
  if (!pathExistsSync(join(tree, 'plugin.sig'))) return false
  try {
    const pluginYaml = readPluginYaml(tree)
    return needsPluginSig(pluginYaml) && isCovered(file, pluginYaml)
  } catch {
    // The plugin.yaml on this host cannot be used, so the plugin counts as signed.
    return true
  }
}

const NOT_A_SMALL_FILE = `is not a regular file of at most ${MAX_SMALL_FILE_BYTES} bytes`

/**
 * Reads the host's own settings; their path may be a link to another file of the operator. Throws DeploymentError
 * `step_failed` if the file is not a regular file, is too large, or cannot be read.
 */
function readSettings(path: string): string {
  try {
    const text = readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
    if (text !== undefined) return text
  } catch (error) {
    const found = errnoOf(error) === 'ENOENT' ? 'is a symlink to nothing' : `cannot be read (${errnoOf(error)})`
    throw unusableSettings(path, found)
  }
  throw unusableSettings(path, NOT_A_SMALL_FILE)
}

function unusableSettings(path: string, found: string): DeploymentError {
  return new DeploymentError('step_failed', `The settings file ${path} ${found}: repair or remove it.`)
}
