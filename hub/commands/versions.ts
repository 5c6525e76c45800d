import { listCatalogue, type PublishedVersion, yankVersion } from '../marketplace/catalogue.ts'
import type { Store } from '../store.ts'
import {
  type Command,
  DATA_OPTION,
  DATA_USAGE,
  parseCommandLine,
  printList,
  requireOption,
  withExistingStore,
} from './command.ts'
import { parseListing } from './listing-options.ts'

const HEADING = ['KIND', 'SLUG', 'VERSION', 'STATE', 'PUBLISHED', 'SHA-256']

export const versions: Command = {
  summary: 'lists what is published',
  usage: `npm run hub -- versions [options]

${DATA_USAGE}`,
  run: args => printList(args, HEADING, listVersions, versionRow),
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
    const listing = parseListing(values)
    const version = requireOption('version', values.version)
    await withExistingStore(values.data, store => yankVersion(store, listing, version))
    console.log(`The ${listing.kind} ${listing.slug} ${version} is no longer served.`)
  },
}

function listVersions(store: Store) {
  return listCatalogue(store).flatMap(({ kind, slug, versions }) => versions.map(row => ({ kind, slug, ...row })))
}

function versionRow({
  kind,
  slug,
  version,
  yanked_at,
  published_at,
  sha256,
}: PublishedVersion & { kind: string; slug: string }): string[] {
  return [kind, slug, version, yanked_at === null ? 'served' : 'yanked', published_at, sha256]
}
