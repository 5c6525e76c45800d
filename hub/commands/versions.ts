import { UsageError } from '../errors.ts'
import { type Listing, type ListingId, listCatalogue, yankVersion } from '../marketplace/catalogue.ts'
import { kindSchema } from '../names.ts'
import {
  type Command,
  DATA_OPTION,
  DATA_USAGE,
  formatTable,
  parseCommandLine,
  requireOption,
  withStore,
} from './command.ts'

export const versions: Command = {
  summary: 'lists what is published',
  usage: `npm run hub -- versions [options]

${DATA_USAGE}`,
  run: async args => {
    const { values } = parseCommandLine(args, DATA_OPTION)
    const catalogue = await withStore(values.data, listCatalogue)
    console.log(
      formatTable([['KIND', 'SLUG', 'VERSION', 'STATE', 'PUBLISHED', 'SHA-256'], ...catalogue.flatMap(versionRows)]),
    )
  },
}

export const yank: Command = {
  summary: 'takes a version back: it stays known and is no longer served',
  usage: `npm run hub -- yank --kind K --slug S --version V [options]

  --kind K         plugin or service
  --slug S         its name on the marketplace
  --version V      the version to take back
${DATA_USAGE}`,
  run: async args => {
    const options = { kind: { type: 'string' }, slug: { type: 'string' }, version: { type: 'string' } } as const
    const { values } = parseCommandLine(args, { ...DATA_OPTION, ...options })
    const listing = parseListing(values.kind, values.slug)
    const version = requireOption('version', values.version)
    await withStore(values.data, store => yankVersion(store, listing, version))
    console.log(`The ${listing.kind} ${listing.slug} ${version} is no longer served.`)
  },
}

function versionRows({ kind, slug, versions: published }: Listing): string[][] {
  return published.map(({ version, yanked_at, published_at, sha256 }) => {
    return [kind, slug, version, yanked_at === null ? 'served' : 'yanked', published_at, sha256]
  })
}

function parseListing(kindText: string | undefined, slug: string | undefined): ListingId {
  const kind = kindSchema.safeParse(requireOption('kind', kindText))
  if (!kind.success) throw new UsageError('The option --kind must be plugin or service.')
  return { kind: kind.data, slug: requireOption('slug', slug) }
}
