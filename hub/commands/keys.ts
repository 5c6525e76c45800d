import { UsageError } from '../errors.ts'
import { type ApiKey, createKey, type KeyRequest, keyRequestSchema, listKeys, revokeKey } from '../keys.ts'
import { parseInput } from '../names.ts'
import {
  type Command,
  DATA_OPTION,
  DATA_USAGE,
  formatTable,
  parseCommandLine,
  requireOption,
  withStore,
} from './command.ts'

export const keys: Command = {
  summary: 'makes, lists and revokes API keys',
  usage: `npm run hub -- keys create --name N [options]
npm run hub -- keys list [options]
npm run hub -- keys revoke ID [options]

  --name N         what the key is for
  --owner O        whose fleet it reports to (default: its name)
  --kind K         with --slug: binds it to one plugin or service
  --slug S
${DATA_USAGE}

"create" prints the key, and nothing else, on standard output. It is not shown again.`,
  run: async ([action, ...args]) => {
    if (action === 'create') return create(args)
    if (action === 'list') return list(args)
    if (action === 'revoke') return revoke(args)
    throw new UsageError('The keys command needs one of create, list and revoke.')
  },
}

async function create(args: string[]): Promise<void> {
  const { values } = parseCommandLine(args, {
    ...DATA_OPTION,
    name: { type: 'string' },
    owner: { type: 'string' },
    kind: { type: 'string' },
    slug: { type: 'string' },
  })
  const { data, ...fields } = values
  const request: KeyRequest = parseInput(keyRequestSchema, { ...fields, name: requireOption('name', values.name) })
  const { key, record } = await withStore(data, store => createKey(store, request))
  console.error(`The API key ${record.id} belongs to ${record.owner}; it is shown only now:`)
  console.log(key)
}

async function list(args: string[]): Promise<void> {
  const { values } = parseCommandLine(args, DATA_OPTION)
  const found = await withStore(values.data, listKeys)
  console.log(formatTable([['ID', 'PREFIX', 'NAME', 'OWNER', 'BOUND TO', 'STATE', 'LAST USED'], ...found.map(keyRow)]))
}

async function revoke(args: string[]): Promise<void> {
  const { values, positionals } = parseCommandLine(args, DATA_OPTION, 1)
  const id = positionals[0]
  if (id === undefined) throw new UsageError('The id of the key to revoke is missing: "keys list" shows it.')
  const { name } = await withStore(values.data, store => revokeKey(store, id))
  console.log(`The API key ${id} (${name}) is revoked.`)
}

function keyRow({ id, prefix, name, owner, kind, slug, is_active, last_used_at }: ApiKey): string[] {
  const binding = kind === null ? '-' : `${kind}/${slug}`
  return [id, prefix, name, owner, binding, is_active ? 'active' : 'revoked', last_used_at ?? 'never']
}
