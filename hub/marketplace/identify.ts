import { HubError, UsageError } from '../errors.ts'
import { type Kind, newVersionSchema, slugOf } from '../names.ts'
import type { VersionId } from './catalogue.ts'
import { PLUGIN_YAML, type PluginYaml } from './plugin-yaml.ts'

const MAX_SHOWN_CHARS = 60

/** The facts that the publisher gives about an archive. */
export interface GivenId {
  /** The name that messages use for the origin of the archive, such as its folder. */
  readonly source: string
  readonly kind?: Kind | undefined
  readonly slug?: string | undefined
  readonly version?: string | undefined
}

/** The version under which an archive is published. */
export interface IdentifiedVersion extends VersionId {
  /** The slug from the name in plugin.yaml. Undefined for a service, or if that name is missing or yields no slug. */
  readonly ownSlug?: string | undefined
}

/** For an archive with a plugin.yaml: throws HubError 400 if the publisher gives it the kind service. */
export function requirePluginKind({ source, kind }: GivenId): void {
  if (kind !== 'service') return
  throw new HubError(
    400,
    `${source} has a ${PLUGIN_YAML}, so it is a plugin, but --kind is service: remove --kind, or that file.`,
  )
}

/**
 * Identifies the version in an archive with this plugin.yaml, which provides the facts that the publisher did not give.
 * Throws HubError 400 if the file and the publisher name different versions, or if the file has a version that cannot
 * be published. Throws UsageError if neither gives a version, or neither gives a slug.
 */
export function identifyPlugin(given: GivenId, described: PluginYaml): IdentifiedVersion {
  const version = versionIn(described, given.version)
  const ownSlug = slugOf(described.name ?? '')
  return { kind: 'plugin', slug: given.slug ?? slugIn(described), version, ownSlug }
}

/**
 * Identifies the version in an archive without a plugin.yaml. Only the publisher can name such a version. Throws
 * HubError 400 if the publisher does not give the kind service, and UsageError if the slug or the version is missing.
 */
export function identifyService({ source, kind, slug, version }: GivenId): VersionId {
  if (kind !== 'service')
    throw new HubError(
      400,
      `${source} has no ${PLUGIN_YAML} at its root, which every plugin needs: add one, or publish a service with --kind service, --slug and --version.`,
    )
  if (slug && version) return { kind, slug, version }
  const missing = [...(slug ? [] : ['slug']), ...(version ? [] : ['version'])]
  const options = missing.map(name => `--${name}`).join(' and ')
  throw new UsageError(`A service has no file that gives its ${missing.join(' and ')}: add ${options}.`)
}

function versionIn({ version: packaged }: PluginYaml, given: string | undefined): string {
  if (packaged === undefined) {
    if (given) return given
    throw new UsageError(`${PLUGIN_YAML} has no version: add the line 'version: "1.0.0"', or name one with --version.`)
  }
  const { error } = newVersionSchema.safeParse(packaged)
  if (error !== undefined)
    throw new HubError(400, `The version ${shown(packaged)} in ${PLUGIN_YAML} ${error.issues[0]?.message}: correct it.`)
  if (given === undefined || withoutV(packaged) === withoutV(given)) return given ?? packaged
  throw new HubError(
    400,
    `The version in ${PLUGIN_YAML} is ${packaged}, but --version is ${given}: remove --version, or correct the file.`,
  )
}

function slugIn({ name }: PluginYaml): string {
  if (name === undefined)
    throw new UsageError(`${PLUGIN_YAML} has no name: add the line "name: my-plugin", or name the plugin with --slug.`)
  const slug = slugOf(name)
  if (slug !== undefined) return slug
  throw new UsageError(`The name ${shown(name)} in ${PLUGIN_YAML} cannot become a slug: name one with --slug.`)
}

function withoutV(version: string): string {
  return version.replace(/^v/, '')
}

/** Quotes the first 60 characters, and escapes or replaces characters that could control a terminal. */
function shown(text: string): string {
  return JSON.stringify(text.slice(0, MAX_SHOWN_CHARS)).replace(/\p{C}/gu, '?')
}
