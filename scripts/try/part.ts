import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { parseDocument } from 'yaml'
import { parseSlug } from '../../hub/commands/listing-options.ts'
import { UsageError } from '../../hub/errors.ts'
import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import { type Kind, slugOf } from '../../hub/names.ts'
import { type PluginYaml, parsePluginYaml, pluginYamlProblem } from '../../src/core/content/plugin-yaml.ts'
import { readStrictYaml, type StrictYaml, StrictYamlProblem } from '../../src/core/document/strict-yaml.ts'
import { ArtifactError } from '../../src/core/errors.ts'
import { PLUGIN_YAML_LIMITS } from '../../src/core/limits.ts'
import { needsPluginSig } from '../../src/install/host/plugin-sig.ts'

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
export interface GivenPart {
  readonly kind: Kind
  readonly slug?: string | undefined
  readonly version?: string | undefined
}

/**
 * Reads the name and version of a plugin from its `plugin.yaml`. By default, a service has its folder's name and the
 * version 1.0.0. Throws UsageError for options that are malformed or contradict the folder, and for a name that cannot
 * become a slug. Throws ArtifactError, which says what to do, if the file cannot be used.
 */
export function readPart(folder: string, given: GivenPart): Part {
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
export function notAPlugin(sentence: string): ArtifactError {
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
  if (version !== undefined && given !== undefined && version !== given)
    throw new UsageError(
      `${join(folder, 'plugin.yaml')} says version ${version}, but --version says ${given}: remove --version, or change the file.`,
    )
  const found = version ?? given
  if (found !== undefined) return found
  throw notAPlugin(
    `${join(folder, 'plugin.yaml')} has no version: add the line 'version: "1.0.0"', or name one with --version.`,
  )
}
