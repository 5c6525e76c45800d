import { HubError, UsageError } from '../errors.ts'
import {
  holdVersion,
  isListed,
  type ListingId,
  listCatalogue,
  type PublishedVersion,
  releaseVersion,
  stateOf,
  type VersionId,
  yankVersion,
} from '../marketplace/catalogue.ts'
import { type Kind, kindSchema, slugOf, slugSchema } from '../names.ts'
import type { Store } from '../store.ts'
import { type Command, DATA_OPTION, DATA_USAGE, listCommand, withExistingStore } from './command.ts'
import { parseCommandLine, requireOption } from './command-line.ts'

const HEADING = ['KIND', 'SLUG', 'VERSION', 'STATE', 'PUBLISHED', 'SHA-256']

export const versions = listCommand({
  name: 'versions',
  summary: 'lists the published versions',
  heading: HEADING,
  find: store => listCatalogue(store).flatMap(listing => listing.versions),
  toRow: versionRow,
})

export const yank = changeCommand({
  name: 'yank',
  summary: 'permanently stops serving a version',
  change: yankVersion,
  done: 'Yanked',
  result: 'the hub no longer serves it',
})

export const hold = changeCommand({
  name: 'hold',
  summary: 'holds a version back for review: the hub lists it, but does not serve it',
  change: holdVersion,
  done: 'Held back',
  result: 'the hub lists it, but does not serve it until it is released',
})

export const release = changeCommand({
  name: 'release',
  summary: 'serves a version that was held back',
  change: releaseVersion,
  done: 'Released',
  result: 'the hub serves it',
})

interface VersionChange {
  /** The words after `npm run hub --`. */
  readonly name: string
  readonly summary: string
  readonly change: (store: Store, id: VersionId) => void
  /** The words that the command prints before and after the version's name. */
  readonly done: string
  readonly result: string
}

function changeCommand({ name, summary, change, done, result }: VersionChange): Command {
  return {
    summary,
    usage: `npm run hub -- ${name} --slug S --version V [options]

  --slug S         the name on the marketplace
  --version V      the version
  --kind K         plugin or service; needed if both have this name
${DATA_USAGE}`,
    run: async args => {
      const options = { kind: { type: 'string' }, slug: { type: 'string' }, version: { type: 'string' } } as const
      const { values } = parseCommandLine(args, { ...DATA_OPTION, ...options })
      const kind = values.kind === undefined ? undefined : parseKind(values.kind)
      const listing = { kind, slug: requireOption('slug', values.slug) }
      const version = requireOption('version', values.version)
      const id = await withExistingStore(values.data, store => {
        const found = { ...findListing(store, listing), version }
        change(store, found)
        return found
      })
      console.log(`${done} the ${id.kind} ${id.slug} ${id.version}: ${result}.`)
    },
  }
}

function versionRow(found: PublishedVersion): string[] {
  const { kind, slug, version, published_at, sha256 } = found
  return [kind, slug, version, stateOf(found), published_at, sha256]
}

/** The options `--kind` and `--slug`. */
interface ListingOptions {
  readonly kind: Kind | undefined
  readonly slug: string
}

/**
 * Returns the plugin or service that the options name. With `--kind`, the plugin or service need not be published.
 * Without `--kind`, throws UsageError if both a plugin and a service have this slug, and HubError 404 if neither has
 * it. The 404's message also names `otherRemedy`.
 */
export function findListing(store: Store, { kind, slug }: ListingOptions, otherRemedy = ''): ListingId {
  if (kind !== undefined) return { kind, slug }
  const [found, ...others] = kindSchema.options.filter(each => isListed(store, { kind: each, slug }))
  if (others.length > 0) throw new UsageError(`This hub has both a plugin and a service ${slug}: add --kind.`)
  if (found !== undefined) return { kind: found, slug }
  throw new HubError(404, `This hub has no plugin or service ${JSON.stringify(slug)}: correct --slug${otherRemedy}.`)
}

/** Throws UsageError for a text that no hub accepts as a slug. */
export function parseSlug(text: string): string {
  const slug = slugSchema.safeParse(text)
  if (slug.success) return slug.data
  const guess = slugOf(text)
  const hint = guess === undefined ? '' : `, for example to ${guess}`
  throw new UsageError(
    `The option --slug ${slug.error.issues[0]?.message}, not ${JSON.stringify(text)}: correct it${hint}.`,
  )
}

/** Throws UsageError for a text that is not a kind. */
export function parseKind(text: string): Kind {
  const kind = kindSchema.safeParse(text)
  if (kind.success) return kind.data
  const guess = kindSchema.options.find(option => text.toLowerCase().startsWith(option))
  const hint = guess === undefined ? '.' : `. Did you mean ${guess}?`
  throw new UsageError(`The option --kind must be plugin or service, not ${JSON.stringify(text)}${hint}`)
}
