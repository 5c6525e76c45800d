import { readFileSync } from 'node:fs'
import { UsageError } from '../errors.ts'
import type { PublishedVersion } from '../marketplace/catalogue.ts'
import { type Publication, publishArchive, publishFolder, publishGitCommit } from '../marketplace/publish.ts'
import { kindSchema } from '../names.ts'
import type { Store } from '../store.ts'
import { type Command, DATA_OPTION, DATA_USAGE, parseCommandLine, requireOption, withStore } from './command.ts'

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
  --version V                 the version, as in the plugin.yaml

SOURCE is one of
  --from DIR                  a folder; .git, node_modules, __pycache__, .env and private keys are left out
  --git REPO --ref TAG        a commit of a local repository, as a code host archives it
  --archive FILE              a ZIP, as it is

SECRET, the developer's signing secret, is one of (it is not kept, and is never an argument)
  --signing-secret-env VAR    the environment variable that holds it
  --signing-secret-file FILE  the file that holds it; a line end after it does not count

  --name N                    the name that people read
  --repo OWNER/REPO@TAG       where the source is
  --replace                   lets a published version have other bytes
${DATA_USAGE}`,
  run: async args => {
    const { values } = parseCommandLine(args, OPTIONS)
    const publication = readPublication(values)
    const source = readSource(values)
    const published = await withStore(values.data, store => source(store, publication))
    announce(publication, published)
  },
}

type Publish = (store: Store, publication: Publication) => Promise<PublishedVersion & { leftOut?: string[] }>

function readSource({ from, git, ref, archive, repo }: Values): Publish {
  if ([from, git, archive].filter(Boolean).length !== 1) {
    throw new UsageError('What to publish is given by exactly one of --from, --git and --archive.')
  }
  if (from) return (store, publication) => publishFolder(store, from, publication)
  if (archive) return (store, publication) => publishArchive(store, readFileSync(archive), publication)
  const name = repo === undefined ? undefined : /\/([^@]+)@/.exec(repo)?.[1]
  const commit = { repository: requireOption('git', git), ref: requireOption('ref', ref), name }
  return (store, publication) => publishGitCommit(store, commit, publication)
}

function readPublication(values: Values): Publication {
  const kind = kindSchema.safeParse(requireOption('kind', values.kind))
  if (!kind.success) throw new UsageError('The option --kind must be plugin or service.')
  return {
    kind: kind.data,
    slug: requireOption('slug', values.slug),
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
    throw new UsageError('The signing secret is given by one of --signing-secret-env and --signing-secret-file.')
  }
  if (file !== undefined) return readFileSync(file, 'utf8').replace(/\r?\n$/, '')
  const secret = process.env[variable ?? '']
  if (!secret) throw new UsageError(`The environment variable ${variable} must hold the signing secret, and is empty.`)
  return secret
}

function announce({ kind, slug }: Publication, published: PublishedVersion & { leftOut?: string[] }): void {
  console.log(
    `Published the ${kind} ${slug} ${published.version}: ${published.size} bytes, SHA-256 ${published.sha256}`,
  )
  for (const path of published.leftOut ?? []) console.error(`Left out: ${path}`)
}
