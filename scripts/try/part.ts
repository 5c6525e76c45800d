import { accessSync, constants, existsSync, readdirSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { basename, dirname, join, resolve } from 'node:path'
import { parseDocument } from 'yaml'
import { UsageError } from '../../hub/errors.ts'
import type { ListingId } from '../../hub/marketplace/catalogue.ts'
import { type Kind, kindSchema, slugOf, slugSchema } from '../../hub/names.ts'
import { type PluginYaml, parsePluginYaml } from '../../src/core/content/plugin-yaml.ts'
import { readStrictYaml, StrictYamlProblem } from '../../src/core/document/strict-yaml.ts'
import { ArtifactError } from '../../src/core/errors.ts'
import { PLUGIN_YAML_LIMITS } from '../../src/core/limits.ts'
import { needsPluginSig } from '../../src/install/host/plugin-sig.ts'

/** The version of a service, which has no file that names one. */
const FIRST_VERSION = '1.0.0'
const PROJECT_PLAN = 'deployment/install.yaml'
const NEAR_MISSES = ['plugin.yml', 'plugin.json', 'Plugin.yaml', 'plugin.yaml.txt']

/** A plugin or service in a folder. */
export interface Part extends ListingId {
  readonly folder: string
  readonly version: string
  /** True if the host signs it, which needs the host framework's key. */
  readonly isSigned: boolean
}

/** The options of the command line about the part. The folder gives the rest. */
export type GivenPart = { readonly [Name in 'kind' | 'slug' | 'version']?: string | undefined }

/**
 * Finds out what the folder contains: a plugin if it has a `plugin.yaml`, whose name and version count, or a service if
 * it has a program at its top. Throws UsageError if there is no folder, and ArtifactError, which says what to add, if
 * the folder is neither or the file cannot be used.
 */
export function readPart(folder: string, given: GivenPart): Part {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory())
    throw new UsageError(`There is no folder ${folder}: name the folder of your plugin or service.`)
  const kind = given.kind === undefined ? detectKind(folder) : parseKind(given.kind)
  const described = kind === 'plugin' ? readOwnPluginYaml(folder) : undefined
  return {
    folder,
    kind,
    slug: parseSlug(given.slug) ?? toSlug(described?.name ?? basename(resolve(folder))),
    version: described === undefined ? (given.version ?? FIRST_VERSION) : versionOf(folder, described, given.version),
    isSigned: described !== undefined && needsPluginSig(described),
  }
}

/** The way to raise the version of the part, in words. */
export function howToRaise({ kind, version }: Pick<Part, 'kind' | 'version'>): string {
  if (kind === 'plugin') return 'in plugin.yaml'
  const next = version.replace(/\d+$/, digits => String(Number(digits) + 1))
  return `--version ${next === version ? 'NEXT' : next}`
}

function parseKind(text: string): Kind {
  const parsed = kindSchema.safeParse(text)
  if (parsed.success) return parsed.data
  throw new UsageError(`The option --kind must be plugin or service, not ${JSON.stringify(text)}.`)
}

function parseSlug(text: string | undefined): string | undefined {
  const parsed = slugSchema.safeParse(text)
  if (text === undefined || parsed.success) return text
  throw new UsageError(`The option --slug ${parsed.error.issues[0]?.message}.`)
}

function detectKind(folder: string): Kind {
  const names = readdirSync(folder)
  if (names.includes('plugin.yaml')) return 'plugin'
  const nearMiss = NEAR_MISSES.find(name => names.includes(name))
  if (existsSync(join(folder, PROJECT_PLAN)))
    throw new UsageError(
      `${folder} is a project, as it has ${PROJECT_PLAN}, and this deploys one plugin or service: see "Try it" in docs/projects.md, or name the folder of one of its parts.`,
    )
  if (nearMiss !== undefined) throw notAPlugin(`${join(folder, nearMiss)} must be named plugin.yaml: rename it.`)
  if (names.some(name => isProgram(join(folder, name)))) return 'service'
  throw notAPlugin(
    `${folder} has no plugin.yaml: add one with the lines "name: ${toSlug(basename(resolve(folder)))}" and 'version: "1.0.0"' if it is a plugin, or add --kind service if it is a service.`,
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

function readOwnPluginYaml(folder: string): PluginYaml {
  const path = join(folder, 'plugin.yaml')
  const found = statSync(path, { throwIfNoEntry: false })
  if (!found?.isFile() || dirname(realpathSync(path)) !== realpathSync(folder))
    throw notAPlugin(`${path} must be a file in this folder: a plugin needs it, with its name and version.`)
  if (found.size > PLUGIN_YAML_LIMITS.bytes)
    throw notAPlugin(`${path} must be at most ${PLUGIN_YAML_LIMITS.bytes} bytes, found ${found.size}: shorten it.`)
  const text = readFileSync(path, 'utf8')
  requireStrictYaml(path, text)
  return parsePluginYaml(text)
}

/** Words the error for the author of the file. */
function requireStrictYaml(path: string, text: string): void {
  try {
    readStrictYaml(text, PLUGIN_YAML_LIMITS)
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
  throw new UsageError(`No slug can be made of the name ${JSON.stringify(name)}: name one with --slug.`)
}

function versionOf(folder: string, { version }: PluginYaml, given: string | undefined): string {
  if (version !== undefined && given !== undefined && version !== given)
    throw new UsageError(
      `${join(folder, 'plugin.yaml')} says version ${version}, so remove --version or change the file.`,
    )
  const found = version ?? given
  if (found !== undefined) return found
  throw notAPlugin(
    `${join(folder, 'plugin.yaml')} has no version: add the line 'version: "1.0.0"', or name one with --version.`,
  )
}

function notAPlugin(sentence: string): ArtifactError {
  return new ArtifactError('not_a_plugin', sentence)
}
