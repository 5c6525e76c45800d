import { UsageError } from '../errors.ts'
import { zipFolder } from '../folder-archive.ts'
import { zipGitCommit } from '../git-archive.ts'
import { requireDeployable } from '../marketplace/deployable.ts'
import { type Publication, publishArchive } from '../marketplace/publish.ts'
import { type Command, DATA_OPTION, readGivenFile, withStore } from './command.ts'
import { parseCommandLine, requireOption } from './command-line.ts'
import { parseListing } from './listing-options.ts'

const OPTIONS = {
  ...DATA_OPTION,
  kind: { type: 'string' },
  slug: { type: 'string' },
  version: { type: 'string' },
  from: { type: 'string' },
  git: { type: 'string' },
  ref: { type: 'string' },
  archive: { type: 'string' },
  name: { type: 'string' },
  repo: { type: 'string' },
  replace: { type: 'boolean', default: false },
  'signing-secret-env': { type: 'string' },
  'signing-secret-file': { type: 'string' },
} as const

type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

export const publish: Command = {
  summary: 'publishes a version of a plugin or service',
  usage: `npm run hub -- publish --kind K --slug S --version V SOURCE SECRET [options]

  --kind K                    plugin or service
  --slug S                    its name on the marketplace
  --version V                 the version, as in plugin.yaml

SOURCE is one of
  --from DIR                  a folder; leaves out .git, node_modules, __pycache__, .env and private keys
  --git REPO --ref TAG        a commit of a local repository, archived as a code host does
  --archive FILE              a ZIP, published unchanged

SECRET is the developer's signing secret. The hub does not store it. It comes from one of
  --signing-secret-env VAR    an environment variable
  --signing-secret-file FILE  a file; a line end after the secret is ignored

  --name N                    the display name
  --repo OWNER/REPO@TAG       the location of the source
  --replace                   replaces the bytes of a version that is already published
  --data DIR                  the data folder (default ${DATA_OPTION.data.default})`,
  run: async args => {
    const { values } = parseCommandLine(args, OPTIONS)
    const publication = readPublication(values)
    const { bytes, leftOut = [] } = await readSource(values)
    await requireDeployable(bytes, publication)
    const { version, size, sha256 } = await withStore(values.data, store => publishArchive(store, bytes, publication))
    console.log(`Published the ${publication.kind} ${publication.slug} ${version}: ${size} bytes, SHA-256 ${sha256}`)
    for (const path of leftOut) console.error(`Left out: ${path}`)
  },
}

interface Source {
  readonly bytes: Buffer
  readonly leftOut?: readonly string[]
}

async function readSource({ from, git, ref, archive, repo }: Values): Promise<Source> {
  if ([from, git, archive].filter(Boolean).length !== 1) {
    throw new UsageError('Name the source with exactly one of --from, --git and --archive.')
  }
  if (from) return zipFolder(from)
  if (archive) return { bytes: readGivenFile('archive', archive) }
  const name = repo === undefined ? undefined : /\/([^@]+)@/.exec(repo)?.[1]
  const repository = requireLocal(requireOption('git', git))
  return { bytes: await zipGitCommit({ repository, ref: requireOption('ref', ref), name }) }
}

function requireLocal(repository: string): string {
  if (!/^[a-z+]+:\/\/|^[^/]+@[^/]+:/i.test(repository)) return repository
  throw new UsageError(`The option --git takes the path of a local clone, not ${repository}: run "git clone" first.`)
}

function readPublication(values: Values): Publication {
  return {
    ...parseListing(values),
    version: requireOption('version', values.version),
    signingSecret: readSigningSecret(values),
    name: values.name,
    repo: values.repo,
    replace: values.replace,
  }
}

function readSigningSecret(values: Values): string {
  const variable = values['signing-secret-env']
  const file = values['signing-secret-file']
  if ((variable === undefined) === (file === undefined)) {
    throw new UsageError('Name the signing secret with exactly one of --signing-secret-env and --signing-secret-file.')
  }
  if (file !== undefined) return withoutLineEnd(readGivenFile('signing-secret-file', file).toString('utf8'))
  const secret = process.env[variable ?? '']
  if (!secret) throw new UsageError(`The environment variable ${variable} is empty: set it to the signing secret.`)
  return secret
}

function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '')
}
