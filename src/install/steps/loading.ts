import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { type PluginNeeds, type PluginYaml, parsePluginYaml } from '../../core/content/plugin-yaml.ts'
import { MAX_SMALL_FILE_BYTES, PLUGIN_YAML_LIMITS } from '../../core/identifiers.ts'
import { placeOfSettings } from '../../core/plan/binding.ts'
import { namesIn } from '../../core/plan/settings.ts'
import { cleanForeignText, listNames } from '../../core/text.ts'
import { meetsCondition } from '../../core/trust/versions.ts'
import { readSmallFileSync, tryReadSmallFileSync } from '../files/open.ts'
import { TimeSlice } from '../files/time-slice.ts'
import { isAbsent, pathExistsSync } from '../files/walk.ts'
import { installPath, placeName, placePath, settingsPath } from '../host/layout.ts'
import { findPart, type Part, type StepContext } from './context.ts'
import { treePathOf } from './settings.ts'

type Context = Pick<StepContext, 'deployment' | 'order'>

/**
 * Before the first step, warns of each plugin that the host framework would skip, because the framework's version,
 * another plugin or a variable is missing, or because the plugin has no plugin.yaml. The run goes on: the operator may
 * know more than the files on this host. Throws only the signal's reason.
 */
export async function warnOfSkipped(context: Context): Promise<void> {
  const { deployment, order } = context
  const { log } = deployment.tools
  const plugins = order.parts.filter(({ shelf }) => shelf === 'plugins')
  const requiring = plugins.filter(({ environment }) => (environment.needs?.requires.length ?? 0) > 0)
  const present = new Map<string, PresentPlugins | undefined>()
  for (const directory of new Set(requiring.map(({ directory }) => directory)))
    present.set(directory, await findPlugins(context, directory))
  for (const part of plugins) {
    const reasons = reasonsToSkip(context, part, present.get(part.directory))
    if (reasons.length > 0)
      log.warning(`The host framework may not load ${placePath(part)}: ${reasons.join('; ')}. This run installs it.`)
  }
  const unknown = plugins.filter(({ environment }) => environment.needs?.frameworkVersion !== undefined)
  if (unknown.length > 0 && order.hostConfig?.frameworkVersion === undefined)
    log.notice(
      `${listNames(unknown.map(placePath))}: plugin.yaml names a framework_version, but the host config does not name the version of the host framework: to compare the two, add framework: {version: "..."} there.`,
    )
}

/** Plugins by the names by which the host framework knows them, with their versions. */
type PresentPlugins = ReadonlyMap<string, string | undefined>

/** Each reason is a clause. */
function reasonsToSkip(context: Context, part: Part, present: PresentPlugins | undefined): string[] {
  const { needs } = part.environment
  const tree = treePathOf(context.deployment.layout, part)
  if (needs === undefined)
    return pathExistsSync(join(tree, 'plugin.json')) ? ['it has a plugin.json, but no plugin.yaml'] : []
  return [
    ...otherFramework(needs, context.order.hostConfig?.frameworkVersion),
    ...(present === undefined ? [] : missingPlugins(part, needs, present)),
    ...missingVariables(context, part, needs),
  ]
}

/** Returns why a framework of this version would not load the plugin, as a clause; nothing if either is unknown. */
export function otherFramework({ frameworkVersion: needed }: PluginNeeds, version: string | undefined): string[] {
  if (needed === undefined || version === undefined) return []
  const named = `its framework_version is "${cleanForeignText(needed, 60)}"`
  const isMet = meetsCondition(version, needed)
  if (isMet === undefined) return [`${named}, which is not a condition such as ">=2.0,<3.0"`]
  return isMet ? [] : [`${named}, but the host config says that the framework is ${version}`]
}

function missingPlugins({ directory }: Part, { requires }: PluginNeeds, present: PresentPlugins): string[] {
  return requires.flatMap(({ name, version: condition = '*' }) => {
    const wanted = condition === '*' ? '' : ` ${cleanForeignText(condition, 60)}`
    const named = `it requires ${cleanForeignText(name, 64)}${wanted}`
    if (!present.has(name)) return [`${named}, which is not in ${directory}`]
    const version = present.get(name)
    const isMet = version === undefined || meetsCondition(version, condition) !== false
    return isMet ? [] : [`${named}, but ${directory} has ${cleanForeignText(version, 60)}`]
  })
}

/** A service may have put any number of files there, each of which takes a third of a second to read at worst. */
const MAX_PLUGINS = 500

/**
 * Returns the plugins that this directory will contain; undefined if there are 500 or more. A plugin's name is the one
 * in plugin.yaml, as the host framework knows the plugin, else the id. Throws only the signal's reason.
 */
async function findPlugins(
  { deployment: { layout, tools }, order }: Context,
  directory: string,
): Promise<PresentPlugins | undefined> {
  const path = join(layout.root, directory)
  const replaced = new Set([...order.parts, ...order.removals].map(placePath))
  const staying = namesOfEntries(path).filter(id => !id.startsWith('_') && !replaced.has(`${directory}/${id}`))
  const trees = [
    ...staying.map(id => ({ id, tree: join(path, id) })),
    ...order.parts
      .filter(part => part.directory === directory)
      .map(part => ({ id: part.id, tree: treePathOf(layout, part) })),
  ]
  const present = new Map<string, string | undefined>()
  let left = MAX_PLUGINS
  await new TimeSlice(tools.signal).forEach(trees, ({ id, tree }) => {
    const text = left > 0 ? tryReadSmallFileSync(join(tree, 'plugin.yaml'), PLUGIN_YAML_LIMITS.bytes) : undefined
    if (text === undefined) return
    left--
    const { name, version } = tryToParse(text) ?? {}
    present.set(name ?? id, version)
  })
  return left > 0 ? present : undefined
}

function namesOfEntries(path: string): string[] {
  try {
    return readdirSync(path)
  } catch {
    return []
  }
}

/** The host framework may read a plugin.yaml that this action would refuse. */
function tryToParse(text: string): PluginYaml | undefined {
  try {
    return parsePluginYaml(text)
  } catch {
    return undefined
  }
}

function missingVariables(context: Context, part: Part, { variables }: PluginNeeds): string[] {
  const known = variables.length === 0 ? undefined : knownVariables(context, part)
  const missing = known === undefined ? [] : variables.filter(name => !known.has(name))
  if (missing.length === 0) return []
  const files = ['.env', `${placePath(part)}.env`]
  return [
    `its env takes ${listNames(missing)} from the environment, but neither ${files.join(' nor ')} nor settings set ${missing.length === 1 ? 'it' : 'them'}`,
  ]
}

/**
 * Returns the variables that the files on this host set, and those that a `write_env` step of this run will set.
 * Returns undefined if a file cannot be read.
 */
function knownVariables({ deployment, order }: Context, part: Part): ReadonlySet<string> | undefined {
  const { layout, request } = deployment
  const { envFile, required, optional } = part.environment
  const templates = order.steps.flatMap(step => {
    if (step.action !== 'write_env' || placeOfSettings(step) !== placeName(part)) return []
    const [shelf, id, ...inner] = step.from.split('/')
    const owner = findPart(order.parts, `${shelf}/${id}`)
    return owner === undefined ? [] : [join(treePathOf(layout, owner), ...inner)]
  })
  const trees = [installPath(layout, part), part.leftBehind, treePathOf(layout, part)]
  const injected = envFile === undefined ? [] : trees.flatMap(tree => (tree === undefined ? [] : [join(tree, envFile)]))
  const paths = [join(layout.root, '.env'), settingsPath(layout, part), ...injected, ...templates]
  const texts = paths.map(tryToReadSettings)
  if (texts.includes(undefined)) return undefined
  const given = templates.length === 0 ? [] : [...required, ...optional].filter(name => request.settings.get(name))
  return new Set([...texts.flatMap(text => [...namesIn(text ?? '')]), ...given])
}

/** Returns an empty string if the file does not exist, or undefined if the file cannot be read. */
export function tryToReadSettings(path: string): string | undefined {
  try {
    return readSmallFileSync(path, MAX_SMALL_FILE_BYTES)
  } catch (error) {
    return isAbsent(error) ? '' : undefined
  }
}
