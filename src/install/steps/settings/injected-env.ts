import { join, relative } from 'node:path'
import { listNames } from '../../../core/foreign-text.ts'
import { isBelow } from '../../../core/is-below.ts'
import { differingSettings, verifySettings } from '../../../core/plan/env-template.ts'
import { makePrivateDirectories, writeNewFile } from '../../files/durable-files.ts'
import { pathExistsSync } from '../../files/trees/tree-walk.ts'
import { installPath, type Layout, type Place, settingsPath, snapshotsPath } from '../../host/layout.ts'
import { isCovered, needsPluginSig } from '../../host/plugin-sig.ts'
import { readPluginYaml } from '../../host/read-plugin-yaml.ts'
import type { Deployment } from '../../transaction/context.ts'
import type { Part } from '../parts/part.ts'
import type { StepContext } from '../step-context.ts'
import { readSettings } from './settings-file.ts'

/**
 * The name of the injected settings in the plugin's directory. The file is the host's own, so keep-paths must list it.
 */
export const INJECTED = '.env'

/** A part that has settings. */
export type SettingsOwner = Place & Pick<Part, 'environment'>

/** Returns the path of the settings that a host framework injects into a plugin (contract 2.1). */
export function injectedEnvPath(layout: Layout, part: Place): string {
  return join(installPath(layout, part), INJECTED)
}

/**
 * True if a `write_env` step for this part would create the part's injected settings: neither the host nor the new
 * tree has such a file yet, and the step may create it.
 */
export function willLackInjectedEnv(
  { layout, keepPaths }: Pick<Deployment, 'layout' | 'keepPaths'>,
  part: Part,
): boolean {
  const tree = treeOf(layout, part)
  const sources = [tree, installPath(layout, part.previous.place), part.leftBehind]
  const isThere = sources.some(folder => folder !== undefined && pathExistsSync(join(folder, INJECTED)))
  return !isThere && isSeedable(keepPaths, part) && !isSigned(tree)
}

/**
 * Creates, with this text, the settings file that the host framework injects into an installed plugin. Does nothing if
 * the framework injects no settings. The file has mode 0600, and is written completely or not at all. Returns whether
 * the file was created. Never changes an existing file, but warns if the file sets a key to a different value than this
 * text does. If the next version would lose the file, or if the plugin's signature covers the file, warns instead of
 * creating the file. Throws DeploymentError `step_failed` if the existing settings cannot be read (see `readSettings`)
 * or lack a required key, or if the file has just appeared.
 */
export async function seedInjectedEnv(
  { deployment, transaction, stagingFolder }: Pick<StepContext, 'deployment' | 'transaction' | 'stagingFolder'>,
  part: SettingsOwner,
  text: string,
): Promise<boolean> {
  const { layout, keepPaths, tools } = deployment
  const target = injectedEnvPath(layout, part)
  const { injectsEnv, required } = part.environment
  if (!injectsEnv) return false
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
  const canSeed = isSeedable(keepPaths, part)
  if (!canSeed || isSigned(installPath(layout, part))) {
    const why = canSeed
      ? 'plugin.sig may cover that file, so the host framework could reject the plugin: ask the publisher to move entry_point to a separate directory'
      : `keep-paths does not name ${INJECTED}, so the next version would lose the file: add ${INJECTED} to keep-paths`
    tools.log.warning(
      `${target}, the only settings that the host framework gives this plugin, was not written. ${why}.`,
    )
    return false
  }
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

function isSeedable(keepPaths: readonly string[], { environment }: SettingsOwner): boolean {
  return environment.injectsEnv === true && isBelow(keepPaths)(INJECTED)
}

/** Returns the path of a part's new tree before the steps run. */
function treeOf(layout: Layout, part: Part): string {
  if (part.intact !== undefined) return installPath(layout, part)
  return part.retained === undefined ? part.staged : join(snapshotsPath(layout, part), part.retained.name)
}

function isSigned(path: string): boolean {
  if (!pathExistsSync(join(path, 'plugin.sig'))) return false
  try {
    const pluginYaml = readPluginYaml(path)
    return needsPluginSig(pluginYaml) && isCovered(INJECTED, pluginYaml)
  } catch {
    // The plugin.yaml on this host cannot be used, so the plugin counts as signed.
    return true
  }
}
