import { listCatalogue, type PublishedVersion, yankVersion } from '../marketplace/catalogue.ts'
import { type Command, DATA_OPTION, DATA_USAGE, parseCommandLine, requireOption, withExistingStore } from './command.ts'
import { listCommand } from './list-command.ts'
import { parseListing } from './listing-options.ts'

const HEADING = ['KIND', 'SLUG', 'VERSION', 'STATE', 'PUBLISHED', 'SHA-256']

export const versions = listCommand({
  name: 'versions',
  summary: 'lists the published versions',
  heading: HEADING,
  find: store => listCatalogue(store).flatMap(listing => listing.versions),
  toRow: versionRow,
})

export const yank: Command = {
  summary: 'stops serving a version, which stays listed',
  usage: `npm run hub -- yank --kind K --slug S --version V [options]

  --kind K         plugin or service
  --slug S         its name on the marketplace
  --version V      the version to yank
${DATA_USAGE}`,
  run: async args => {
    const options = { kind: { type: 'string' }, slug: { type: 'string' }, version: { type: 'string' } } as const
    const { values } = parseCommandLine(args, { ...DATA_OPTION, ...options })
    const id = { ...parseListing(values), version: requireOption('version', values.version) }
    await withExistingStore(values.data, store => yankVersion(store, id))
    console.log(`Yanked the ${id.kind} ${id.slug} ${id.version}: the hub no longer serves it.`)
  },
}

function versionRow({ kind, slug, version, yanked_at, published_at, sha256 }: PublishedVersion): string[] {
  return [kind, slug, version, yanked_at === null ? 'served' : 'yanked', published_at, sha256]
}
