import { UsageError } from '../errors.ts'
import type { ListingId } from '../marketplace/catalogue.ts'
import { type Kind, kindSchema } from '../names.ts'
import { requireOption } from './command.ts'

/** The plugin or service that `--kind` and `--slug` name. Throws UsageError when one is missing or the kind is unknown. */
export function parseListing(values: { kind?: string | undefined; slug?: string | undefined }): ListingId {
  return { kind: parseKind(requireOption('kind', values.kind)), slug: requireOption('slug', values.slug) }
}

export function parseKind(text: string): Kind {
  const kind = kindSchema.safeParse(text)
  if (kind.success) return kind.data
  const meant = kindSchema.options.find(option => text.toLowerCase().startsWith(option))
  const hint = meant === undefined ? '' : `; did you mean ${meant}?`
  throw new UsageError(`The option --kind must be plugin or service, found ${JSON.stringify(text)}${hint}`)
}
