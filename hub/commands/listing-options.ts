import { HubError, UsageError } from '../errors.ts'
import { isListed, type ListingId } from '../marketplace/catalogue.ts'
import { type Kind, kindSchema, slugOf, slugSchema } from '../names.ts'
import type { Store } from '../store.ts'

/** The options `--kind` and `--slug`. */
export interface ListingOptions {
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
