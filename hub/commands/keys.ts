import { type ApiKey, createKey, listKeys, revokeKey } from '../access.ts'
import { UsageError } from '../errors.ts'
import { isListed } from '../marketplace/catalogue.ts'
import { labelSchema } from '../names.ts'
import type { Store } from '../store.ts'
import {
  type Command,
  type CommandGroup,
  DATA_OPTION,
  DATA_USAGE,
  listCommand,
  SILENT_USAGE,
  withExistingStore,
  withStore,
} from './command.ts'
import { parseCommandLine, requireForm, requireOption } from './command-line.ts'
import { findListing, parseKind } from './versions.ts'

const OR_KIND = ', or, if it is not published yet, add --kind'
const HEADING = ['ID', 'PREFIX', 'NAME', 'OWNER', 'BOUND TO', 'STATE', 'LAST USED']

const CREATE_OPTIONS = {
  ...DATA_OPTION,
  name: { type: 'string' },
  owner: { type: 'string' },
  kind: { type: 'string' },
  slug: { type: 'string' },
  publish: { type: 'boolean', default: false },
} as const

const create: Command = {
  summary: 'creates an API key and shows it once',
  usage: `npm run hub -- keys create --name N [options]

  --name N         what the key is for
  --owner O        the owner of the fleet that the key reports to (default: the key's name)
  --slug S         binds the key to the plugin or service with this name
  --kind K         with --slug: plugin or service; needed if the hub has both or neither with this name
  --publish        with --slug: a key that can publish new versions over HTTP (publish --hub-url), and nothing else
${DATA_USAGE}

Standard output gets the key and nothing else. The hub cannot show it again.
${SILENT_USAGE}`,
  run: async args => {
    const { values } = parseCommandLine(args, CREATE_OPTIONS)
    const { data, slug, owner, publish: can_publish } = values
    const name = requireOption('name', values.name)
    requireForm('name', name, labelSchema)
    requireForm('owner', owner, labelSchema)
    const kind = values.kind === undefined ? undefined : parseKind(values.kind)
    if (kind !== undefined || can_publish) requireOption('slug', slug)
    if (can_publish && owner !== undefined)
      throw new UsageError('The option --owner does not apply to --publish, because such a key reports nothing.')
    const { key, record } = await withStore(data, store => {
      const listing = slug === undefined ? {} : findListing(store, { kind, slug }, OR_KIND)
      const issued = createKey(store, { name, owner, can_publish, ...listing })
      noteUnpublished(store, issued.record)
      return issued
    })
    const created = can_publish
      ? `publish key ${record.id} for the ${record.kind} ${record.slug}`
      : `API key ${record.id} for ${record.owner}`
    console.error(`Created the ${created}. Save it now, because the hub cannot show it again:`)
    console.log(key)
  },
}

/**
 * Warns about a slug that has no version yet. A key may be created before the first version is published, but such a
 * slug is usually a typo.
 */
function noteUnpublished(store: Store, { kind, slug, can_publish }: ApiKey): void {
  if (kind === null || slug === null || can_publish || isListed(store, { kind, slug })) return
  console.error(`Note: this hub has no ${kind} ${slug} yet. Publish it, or create another key for the correct slug.`)
}

const list = listCommand({
  name: 'keys list',
  summary: 'lists the API keys, without their values',
  heading: HEADING,
  find: listKeys,
  toRow: keyRow,
})

const revoke: Command = {
  summary: 'revokes an API key',
  usage: `npm run hub -- keys revoke ID [options]

${DATA_USAGE}`,
  run: async args => {
    const { values, positionals } = parseCommandLine(args, DATA_OPTION, 1)
    const id = positionals[0]
    if (id === undefined) throw new UsageError('The id of the key is missing: "keys list" shows it.')
    const { name } = await withExistingStore(values.data, store => revokeKey(store, id))
    console.log(`Revoked the API key ${id} (${name}).`)
  },
}

export const keys: CommandGroup = {
  name: 'npm run hub -- keys',
  summary: 'creates, lists and revokes API keys',
  commands: { create, list, revoke },
}

function keyRow({ id, prefix, name, owner, kind, slug, can_publish, is_active, last_used_at }: ApiKey): string[] {
  const binding = kind === null ? '-' : `${kind}/${slug}${can_publish ? ' (publish)' : ''}`
  return [id, prefix, name, owner, binding, is_active ? 'active' : 'revoked', last_used_at ?? 'never']
}
