import {
  accessSync,
  constants,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
} from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { parseDocument } from 'yaml'
import { requireForm } from '../../hub/commands/command-line.ts'
import { parseSlug } from '../../hub/commands/versions.ts'
import { UsageError } from '../../hub/errors.ts'
import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import { type Kind, pluginsDirnameSchema, projectVersionSchema, slugOf, withoutV } from '../../hub/names.ts'
import { readProjectId } from '../../hub/project/plan.ts'
import { findPluginsDirname, PLAN_PATH } from '../../hub/project/source-tree.ts'
import { type PluginYaml, parsePluginYaml, pluginYamlProblem } from '../../src/core/content/plugin-yaml.ts'
import { ArtifactError } from '../../src/core/errors.ts'
import { PLUGIN_YAML_LIMITS } from '../../src/core/identifiers.ts'
import { readStrictYaml, type StrictYaml, StrictYamlProblem } from '../../src/core/yaml/strict.ts'
import { needsPluginSig } from '../../src/install/steps/plugin-sig.ts'

const KINDS = ['plugin', 'service', 'project'] as const
const NEAR_MISSES = ['plugin.yml', 'plugin.json', 'Plugin.yaml', 'plugin.yaml.txt']

/** A folder with the sources of one deployment. */
export type Sources = Part | Project

/** The command-line options about the sources. The folder provides the other facts. */
export type GivenSources = {
  readonly [Name in 'kind' | 'slug' | 'version' | 'plugins-dirname']?: string | undefined
}

/**
 * Reads the sources in a folder. If no kind is given, a folder with a `plugin.yaml` is a plugin, one with the plan of a
 * project is a project, and one with a program at its root is a service. Throws UsageError if there is no folder, and
 * for an option that does not apply. Throws ArtifactError, which says what to add or rename, if the folder is none of
 * these, or has a `plugin.yaml` under a wrong name. Also throws as readPart and readProject do.
 */
export function readSources(folder: string, given: GivenSources): Sources {
  const found = statSync(folder, { throwIfNoEntry: false })
  if (!found?.isDirectory())
    throw new UsageError(
      `${found === undefined ? `There is no folder ${folder}` : `${folder} is not a folder`}: name the folder of your plugin, service or project.`,
    )
  const kind = given.kind === undefined ? detectKind(folder) : parseKind(given.kind)
  if (kind === 'project') return readProject(folder, given)
  if (given['plugins-dirname'] !== undefined)
    throw new UsageError(`The option --plugins-dirname applies to a project, but this is a ${kind}: remove the option.`)
  return readPart(folder, { ...given, kind })
}

/** The way to raise the version of the sources, in words. */
export function howToRaise({ version, versionFile }: Pick<Sources, 'version' | 'versionFile'>): string {
  if (versionFile !== undefined) return `in ${versionFile}`
  const next = version.replace(/\d+$/, digits => String(Number(digits) + 1))
  return `--version ${next === version ? 'NEXT' : next}`
}

function parseKind(text: string): Sources['kind'] {
  const kind = KINDS.find(each => each === text)
  if (kind !== undefined) return kind
  throw new UsageError(`The option --kind must be plugin, service or project, not ${JSON.stringify(text)}.`)
}

function detectKind(folder: string): Kind | 'project' {
  const names = readdirSync(folder)
  if (names.includes('plugin.yaml')) return 'plugin'
  if (existsSync(join(folder, PLAN_PATH))) return 'project'
  const nearMiss = NEAR_MISSES.find(name => names.includes(name))
  if (nearMiss !== undefined) throw notAPlugin(`${join(folder, nearMiss)} must be named plugin.yaml: rename it.`)
  if (names.some(name => isProgram(join(folder, name)))) return 'service'
  const name = slugOf(basename(resolve(folder))) ?? 'my-plugin'
  throw notAPlugin(
    `${folder} has no plugin.yaml: add one with the lines "name: ${name}" and 'version: "1.0.0"' if it is a plugin, add --kind service if it is a service, or ${PLAN_PATH} if it is a project.`,
  )
}

function isProgram(path: string): boolean {
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) return false
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

/** The default version of a service or a project. No file of a service or a project names its version. */
export const FIRST_VERSION = '1.0.0'

/** A plugin or service in a folder. */
export interface Part extends ListingId {
  readonly folder: string
  readonly version: string
  /** The slug made from the name in its `plugin.yaml`; undefined if none can be made. */
  readonly ownSlug?: string | undefined
  /** The file that names the version; undefined if only an option or the default does. */
  readonly versionFile: 'plugin.yaml' | undefined
  /** True if the host signs the plugin, with the host framework's key. */
  readonly isSigned: boolean
}

/** The command-line options about the part, with the part's kind. The folder provides the other facts. */
interface GivenPart {
  readonly kind: Kind
  readonly slug?: string | undefined
  readonly version?: string | undefined
}

/**
 * Reads the name and version of a plugin from its `plugin.yaml`. By default, a service has its folder's name and the
 * version 1.0.0. Throws UsageError for options that are malformed or contradict the folder, and for a name that cannot
 * become a slug. Throws ArtifactError, which says what to do, if the file cannot be used.
 */
function readPart(folder: string, given: GivenPart): Part {
  const { kind } = given
  if (kind === 'service' && existsSync(join(folder, 'plugin.yaml')))
    throw new UsageError(`${folder} has a plugin.yaml, so it is a plugin: remove --kind, or that file.`)
  const described = kind === 'plugin' ? readOwnPluginYaml(folder) : undefined
  return {
    folder,
    kind,
    slug: given.slug === undefined ? toSlug(described?.name ?? basename(resolve(folder))) : parseSlug(given.slug),
    ownSlug: slugOf(described?.name ?? ''),
    version: described === undefined ? (given.version ?? FIRST_VERSION) : versionOf(folder, described, given.version),
    versionFile: described?.version === undefined ? undefined : 'plugin.yaml',
    isSigned: described !== undefined && needsPluginSig(described),
  }
}

/** Builds an ArtifactError `not_a_plugin`. */
function notAPlugin(sentence: string): ArtifactError {
  return new ArtifactError('not_a_plugin', sentence)
}

function readOwnPluginYaml(folder: string): PluginYaml {
  const path = join(folder, 'plugin.yaml')
  const found = statSync(path, { throwIfNoEntry: false })
  if (!found?.isFile() || dirname(realpathSync(path)) !== realpathSync(folder))
    throw notAPlugin(`${path} must be a file in this folder: a plugin needs this file, with its name and version.`)
  if (found.size > PLUGIN_YAML_LIMITS.bytes)
    throw notAPlugin(`${path} must be at most ${PLUGIN_YAML_LIMITS.bytes} bytes, but found ${found.size}: shorten it.`)
  const text = readFileSync(path, 'utf8')
  const problem = pluginYamlProblem(parseStrictYaml(path, text))
  if (problem !== undefined) throw notAPlugin(`${path} ${problem}: correct it and try again.`)
  return parsePluginYaml(text)
}

/** Throws ArtifactError `not_a_plugin`, addressed to the author of the file, unless the text is strict YAML. */
function parseStrictYaml(path: string, text: string): StrictYaml {
  try {
    return readStrictYaml(text, PLUGIN_YAML_LIMITS)
  } catch (error) {
    if (!(error instanceof StrictYamlProblem)) throw error
    const line = error.isAmbiguous
      ? undefined
      : parseDocument(text, { logLevel: 'silent' }).errors[0]?.linePos?.[0].line
    const place = line === undefined ? path : `${path}:${line}`
    throw notAPlugin(`${place} ${error.message}: correct it and try again.`)
  }
}

function toSlug(name: string): string {
  const slug = slugOf(name)
  if (slug !== undefined) return slug
  throw new UsageError(`The name ${JSON.stringify(name)} cannot become a slug: name one with --slug.`)
}

function versionOf(folder: string, { version }: PluginYaml, given: string | undefined): string {
  if (version !== undefined && given !== undefined && withoutV(version) !== withoutV(given))
    throw new UsageError(
      `${join(folder, 'plugin.yaml')} says version ${version}, but --version says ${given}: remove --version, or change the file.`,
    )
  const found = given ?? version
  if (found !== undefined) return found
  throw notAPlugin(
    `${join(folder, 'plugin.yaml')} has no version: add the line 'version: "1.0.0"', or name one with --version.`,
  )
}

/** The sources of a project in a folder. */
export interface Project {
  readonly kind: 'project'
  /** The id in its plan. */
  readonly slug: string
  readonly folder: string
  readonly version: string
  /** The folder of its plugins, in the sources and on the host. */
  readonly pluginsDirname: string
  /** No file of a project names its version. */
  readonly versionFile: undefined
  /** True if the host signs at least one of the project's plugins, with the host framework's key. */
  readonly isSigned: boolean
}

/** The command-line options about the project. */
interface GivenProject {
  readonly slug?: string | undefined
  readonly version?: string | undefined
  readonly 'plugins-dirname'?: string | undefined
}

/**
 * Reads the project's id from its plan, and its plugins folder from `integration.yaml`. Only options can name its version.
 * Throws UsageError for options that do not apply or are malformed, and if there is no plan. Throws HubError if the
 * plan cannot be used.
 */
function readProject(folder: string, given: GivenProject): Project {
  const { slug, version = FIRST_VERSION, 'plugins-dirname': pluginsDirname = findPluginsDirname(folder) } = given
  if (slug !== undefined)
    throw new UsageError(
      `The option --slug does not apply to a project, whose id is in ${PLAN_PATH}: remove the option.`,
    )
  requireForm('version', version, projectVersionSchema)
  requireForm('plugins-dirname', pluginsDirname, pluginsDirnameSchema)
  const plan = join(folder, PLAN_PATH)
  if (!statSync(plan, { throwIfNoEntry: false })?.isFile())
    throw new UsageError(
      `${folder} has no file ${PLAN_PATH}: add this plan if it is a project; otherwise, name another kind with --kind.`,
    )
  const id = { kind: 'project', slug: readProjectId(plan), folder } as const
  const isSigned = hasSignedPlugin(join(folder, pluginsDirname))
  return { ...id, version, pluginsDirname, versionFile: undefined, isSigned }
}

function hasSignedPlugin(plugins: string): boolean {
  if (!statSync(plugins, { throwIfNoEntry: false })?.isDirectory()) return false
  const folders = readdirSync(plugins, { withFileTypes: true }).filter(entry => entry.isDirectory())
  return folders.some(({ name }) => isSigned(join(plugins, name, 'plugin.yaml')))
}

/** True if the host signs the plugin. False for a file that cannot be used, which sealing or the host refuses. */
function isSigned(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (!found?.isFile() || found.size > PLUGIN_YAML_LIMITS.bytes) return false
  try {
    return needsPluginSig(parsePluginYaml(readFileSync(path, 'utf8')))
  } catch {
    return false
  }
}
