import { UsageError } from '../errors.ts'
import type { ListingId } from '../marketplace/catalogue.ts'
import { type Kind, kindSchema } from '../names.ts'
import { requireOption } from './command-line.ts'

/** Parses `--kind` and `--slug`. Throws UsageError if one is missing or the kind is unknown. */
export function parseListing(values: { kind?: string | undefined; slug?: string | undefined }): ListingId {
  return { kind: parseKind(requireOption('kind', values.kind)), slug: requireOption('slug', values.slug) }
}

export function parseKind(text: string): Kind {
  const kind = kindSchema.safeParse(text)
  if (kind.success) return kind.data
  const guess = kindSchema.options.find(option => text.toLowerCase().startsWith(option))
  const hint = guess === undefined ? '.' : `. Did you mean ${guess}?`
  throw new UsageError(`The option --kind must be plugin or service, not ${JSON.stringify(text)}${hint}`)
}
