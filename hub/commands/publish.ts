import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { zipFolder, zipGitCommit } from '../archive/make-zip.ts'
import { hashOf } from '../artifacts.ts'
import { HubError, UsageError } from '../errors.ts'
import { requireSafeUrl, sendUpload } from '../http/send-upload.ts'
import { type PublishedVersion, stateOf, type VersionId } from '../marketplace/catalogue.ts'
import {
  type IdentifiedVersion,
  type Publication,
  publishArchive,
  requireDeployable,
  signPublication,
} from '../marketplace/publish.ts'
import { labelSchema, newVersionSchema, repoSchema } from '../names.ts'
import { type Command, DATA_DEFAULT, DATA_OPTION, readGivenFile, sayingStillRunning, withStore } from './command.ts'
import { parseCommandLine, readSecretVariable, requireForm, requireOption } from './command-line.ts'
import { parseKind, parseSlug } from './versions.ts'

const OPTIONS = {
  data: { type: 'string' },
  'hub-url': { type: 'string' },
  'token-env': { type: 'string' },
  kind: { type: 'string' },
  slug: { type: 'string' },
  version: { type: 'string' },
  from: { type: 'string' },
  git: { type: 'string' },
  ref: { type: 'string' },
  archive: { type: 'string' },
  name: { type: 'string' },
  repo: { type: 'string' },
  private: { type: 'boolean' },
  public: { type: 'boolean' },
  replace: { type: 'boolean', default: false },
  'signing-secret-env': { type: 'string' },
  'signing-secret-file': { type: 'string' },
} as const

type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

export const publish: Command = {
  summary: 'publishes a version of a plugin or service',
  usage: `npm run hub -- publish SOURCE SECRET [options]
npm run hub -- publish --kind service --slug S --version V SOURCE SECRET [options]

SOURCE is one of
  --from DIR                  a folder; leaves out, and lists, files such as .git, node_modules, .env and private keys
  --git REPO --ref TAG        a commit of a local repository, archived as a code host does
  --archive FILE              a ZIP, published unchanged

The plugin.yaml at the root of a plugin gives its name and version. A service has no such file, so give them as options:
  --kind K                    plugin or service (default: plugin)
  --slug S                    the name on the marketplace (default: the name in plugin.yaml)
  --version V                 the version (default: the version in plugin.yaml)

SECRET is the developer's signing secret. The hub does not store it. It comes from one of
  --signing-secret-env VAR    an environment variable
  --signing-secret-file FILE  a file; a line break after the secret is ignored

  --name N                    the display name
  --repo OWNER/REPO@TAG       the location of the source
  --private, --public         who may see it: its keys, or everybody (default: as before; public for a new name)
  --replace                   replaces a published version; one that is held back stays held back
  --data DIR                  the data folder (default ${DATA_DEFAULT})

To publish to a running hub instead:
  --hub-url URL               its base URL, which may include a path
  --token-env VAR             the environment variable with a key from "keys create --publish", or the admin token`,
  run: async args => {
    const { values } = parseCommandLine(args, OPTIONS)
    const kind = values.kind === undefined ? undefined : parseKind(values.kind)
    requireForm('version', values.version, newVersionSchema)
    requireForm('name', values.name, labelSchema)
    requireForm('repo', values.repo, repoSchema)
    const publishTo = chooseHub(values)
    const how = readPublishing(values)
    const slug = values.slug === undefined ? undefined : parseSlug(values.slug)
    const { bytes, leftOut, id } = await sayingStillRunning('Publishing', async () => {
      const { bytes, source, leftOut = [] } = await readSource(values)
      return { bytes, leftOut, id: await requireDeployable(bytes, { source, kind, slug, version: values.version }) }
    })
    const sha256 = await publishTo(bytes, { ...id, ...how })
    console.log(`Published the ${id.kind} ${id.slug} ${id.version}: ${bytes.length} bytes, SHA-256 ${sha256}`)
    noteOtherName(id)
    for (const path of leftOut) console.error(`Left out: ${path}`)
  },
}

/** Publishes the bytes, and returns their SHA-256. */
type PublishTo = (bytes: Buffer, publication: Publication) => Promise<string>

function chooseHub(values: Values): PublishTo {
  const { data, 'hub-url': hubUrl, 'token-env': variable } = values
  if (hubUrl === undefined && variable === undefined) return publishIn(data ?? DATA_OPTION.data.default)
  if (hubUrl === undefined || variable === undefined || data !== undefined)
    throw new UsageError('Name a running hub with --hub-url and --token-env, or a data folder with --data.')
  const local = (['name', 'private', 'public'] as const).find(name => values[name] !== undefined)
  if (local !== undefined)
    throw new UsageError(`The option --${local} does not apply to --hub-url: use it on the hub's own machine.`)
  const token = readSecretVariable({ option: 'token-env', variable, purpose: 'token' })
  if (/[^\x21-\x7e]/.test(token))
    throw new UsageError('The variable of --token-env contains more than a token: remove white space and line breaks.')
  return publishOver(requireSafeUrl(hubUrl), token)
}

function publishIn(data: string): PublishTo {
  return async (bytes, publication) => {
    const published = await sayingStillRunning('Publishing', () =>
      withStore(data, store => publishArchive(store, bytes, publication)),
    )
    noteHeldBack(published)
    return published.sha256
  }
}

const answerSchema = z.object({ kind: z.string(), slug: z.string(), version: z.string(), sha256: z.string() })

/** The hub gets the signature, never the signing secret. */
function publishOver(hubUrl: string, token: string): PublishTo {
  return async (bytes, publication) => {
    const { kind, slug, version, signature, repo, replace } = signPublication(bytes, publication)
    const query = new URLSearchParams({ version, ...(repo && { repo }), ...(replace && { replace: 'true' }) })
    const url = `${hubUrl}/${kind}s/${slug}/publish?${query}`
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/zip', 'X-Signature': signature }
    const { status, answer } = await sendUpload({ url, headers, body: bytes }, answerSchema)
    const expected = { kind, slug, version, sha256: await hashOf(bytes) }
    if (!isDeepStrictEqual(answer, expected))
      throw new HubError(400, `${url} answered with another version or other bytes: check what that hub now serves.`)
    if (status === 200) console.error('Note: this version was already published, with the same bytes and signature.')
    return expected.sha256
  }
}

function noteHeldBack(published: PublishedVersion): void {
  if (stateOf(published) !== 'held back') return
  console.error(
    'Note: this version is held back for review, so the hub does not serve it. "npm run hub -- release" releases it.',
  )
}

/** A publisher may choose another name, but such a name is usually a typo, or was meant for another plugin. */
function noteOtherName({ slug, ownSlug = slug }: IdentifiedVersion): void {
  if (ownSlug === slug) return
  console.error(
    `Note: --slug is ${slug}, but plugin.yaml names the plugin ${ownSlug}. If that was a mistake, yank this version of ${slug}, and publish without --slug.`,
  )
}

interface Source {
  readonly bytes: Buffer
  /** The name that messages use for the origin of the archive. */
  readonly source: string
  readonly leftOut?: readonly string[]
}

async function readSource({ from, git, ref, archive, repo }: Values): Promise<Source> {
  if ([from, git, archive].filter(Boolean).length !== 1) {
    throw new UsageError('Name the source with exactly one of --from, --git and --archive.')
  }
  if (from) return { ...zipFolder(requireFolder(from)), source: resolve(from) }
  if (archive) return { bytes: readGivenFile('archive', requireFile(archive)), source: resolve(archive) }
  const name = repo === undefined ? undefined : /\/([^@]+)@/.exec(repo)?.[1]
  const commit = { repository: requireLocal(requireOption('git', git)), ref: requireOption('ref', ref), name }
  return { bytes: await zipGitCommit(commit), source: `${commit.ref} of ${resolve(commit.repository)}` }
}

function requireFolder(from: string): string {
  if (!statSync(from, { throwIfNoEntry: false })?.isFile()) return from
  throw new UsageError(`The option --from takes a folder, but ${from} is a file: publish a ZIP with --archive.`)
}

function requireFile(archive: string): string {
  if (!statSync(archive, { throwIfNoEntry: false })?.isDirectory()) return archive
  throw new UsageError(`The option --archive takes a ZIP, but ${archive} is a folder: publish it with --from.`)
}

function requireLocal(repository: string): string {
  if (!/^[a-z+]+:\/\/|^[^/]+@[^/]+:/i.test(repository)) return repository
  throw new UsageError(`The option --git takes the path of a local clone, not ${repository}: run "git clone" first.`)
}

function readPublishing(values: Values): Omit<Publication, keyof VersionId> {
  return {
    signingSecret: readSigningSecret(values),
    name: values.name,
    repo: values.repo,
    isPrivate: readPrivacy(values),
    replace: values.replace,
  }
}

function readPrivacy(values: Values): boolean | undefined {
  if (values.private && values.public) throw new UsageError('Give at most one of --private and --public.')
  return values.private || (values.public ? false : undefined)
}

function readSigningSecret(values: Values): string {
  const variable = values['signing-secret-env']
  const file = values['signing-secret-file']
  if ((variable === undefined) === (file === undefined)) {
    throw new UsageError('Name the signing secret with exactly one of --signing-secret-env and --signing-secret-file.')
  }
  if (file !== undefined) return withoutLineEnd(readGivenFile('signing-secret-file', file).toString('utf8'))
  return readSecretVariable({ option: 'signing-secret-env', variable: variable ?? '', purpose: 'signing secret' })
}

function withoutLineEnd(text: string): string {
  return text.replace(/\r?\n$/, '')
}
