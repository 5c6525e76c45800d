import { HubError, UsageError } from '../errors.ts'
import { zipFolder } from '../folder-archive.ts'
import { zipGitCommit } from '../git-archive.ts'
import { readPackagedVersion } from '../marketplace/packaged-version.ts'
import { type Publication, publishArchive } from '../marketplace/publish.ts'
import {
  type Command,
  DATA_OPTION,
  DATA_USAGE,
  parseCommandLine,
  readGivenFile,
  requireOption,
  withStore,
} from './command.ts'
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
    const { bytes, leftOut = [] } = await readSource(values)
    requireSameVersion(publication, bytes)
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
    throw new UsageError('What to publish is given by exactly one of --from, --git and --archive.')
  }
  if (from) return zipFolder(from)
  if (archive) return { bytes: readGivenFile('archive', archive) }
  const name = repo === undefined ? undefined : /\/([^@]+)@/.exec(repo)?.[1]
  const repository = requireLocal(requireOption('git', git))
  return { bytes: await zipGitCommit({ repository, ref: requireOption('ref', ref), name }) }
}

function requireLocal(repository: string): string {
  if (!/^[a-z+]+:\/\/|^[^/]+@[^/]+:/i.test(repository)) return repository
  throw new UsageError(`The option --git takes the path of a local clone, found ${repository}: run "git clone" first.`)
}

/** A deployment would refuse a plugin whose plugin.yaml says another version than the one it was asked for. */
function requireSameVersion({ kind, version }: Publication, bytes: Buffer): void {
  const packaged = kind === 'plugin' ? readPackagedVersion(bytes) : undefined
  if (packaged === undefined || packaged.replace(/^v/, '') === version.replace(/^v/, '')) return
  throw new HubError(
    400,
    `The option --version is ${version}, and plugin.yaml says ${packaged}: they must be the same.`,
  )
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
    throw new UsageError('The signing secret is given by one of --signing-secret-env and --signing-secret-file.')
  }
  if (file !== undefined)
    return readGivenFile('signing-secret-file', file)
      .toString('utf8')
      .replace(/\r?\n$/, '')
  const secret = process.env[variable ?? '']
  if (!secret) throw new UsageError(`The environment variable ${variable} must hold the signing secret, and is empty.`)
  return secret
}
