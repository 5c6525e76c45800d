import { readFileSync, realpathSync, rmSync } from 'node:fs'
import { basename, dirname, join, relative, resolve } from 'node:path'
import { z } from 'zod'
import { HubError, UsageError } from '../errors.ts'
import { unreadable, writeNewFile } from '../files.ts'
import { labelSchema, parseInput, pluginsDirnameSchema, projectIdSchema, projectVersionSchema } from '../names.ts'
import { readSourceRegistry } from '../project/part-sources.ts'
import { publishProject, releaseSchema, requireDeployableProject, type SealedRelease } from '../project/publish.ts'
import { type Published, sendPublication } from '../project/publishing/send-publication.ts'
import { createSigningKey, readSigningKey, type SealedProject, sealProject, signerPublicKey } from '../project/seal.ts'
import { type Command, DATA_DEFAULT, DATA_OPTION, SILENT_USAGE, sayingStillRunning, withStore } from './command.ts'
import { parseCommandLine, readSecretVariable, requireForm, requireOption } from './command-line.ts'

const SEAL_OPTIONS = {
  source: { type: 'string' },
  'project-id': { type: 'string' },
  version: { type: 'string' },
  'signing-key': { type: 'string' },
  'project-name': { type: 'string' },
  'plugins-dirname': { type: 'string' },
  sources: { type: 'string' },
  'built-at': { type: 'string' },
} as const

const SEAL_USAGE = `  --source DIR           the folder with plugins/, extensions/ and deployment/install.yaml; it is only read
  --version V            the project's version (semver)
  --signing-key FILE     the private key (Ed25519) from "project keygen", or the 32 raw bytes of one

  --project-id P         the project's id (default: project_id in the plan)
  --project-name N       the display name (default: the id)
  --plugins-dirname D    the folder of the plugins in the source (default: that of integration.yaml, or plugins)
  --sources FILE         sources of parts from elsewhere, in JSON: {"pay": {"source": {"marketplace_slug": "pay"}}};
                         steps, plugin.yaml, service.yaml and extension.yaml may also have a source
  --built-at TIME        ISO 8601 date, or date and time with Z or an offset (default: SOURCE_DATE_EPOCH or now)`

/** Only times that mean the same on every machine. */
const timeSchema = z.union([
  z.iso.date(),
  z.iso.datetime({ offset: true }),
  z.iso.datetime({ offset: true, precision: -1 }),
])
/** The last year that fits into the four digits of a manifest's time. */
const LAST_YEAR = 9999

type SealValues = { readonly [name in keyof typeof SEAL_OPTIONS]?: string | undefined }

/**
 * Seals according to the options, and lists the omitted paths on standard error. Throws UsageError for a missing or
 * malformed option, and HubError as readSigningKey, readSourceRegistry and sealProject do.
 */
export async function sealSource(values: SealValues): Promise<SealedProject> {
  requireForm('project-id', values['project-id'], projectIdSchema)
  requireForm('version', values.version, projectVersionSchema)
  requireForm('project-name', values['project-name'], labelSchema)
  requireForm('plugins-dirname', values['plugins-dirname'], pluginsDirnameSchema)
  const sealed = await sealProject({
    source: requireOption('source', values.source),
    projectId: values['project-id'],
    version: requireOption('version', values.version),
    signingKey: readSigningKey(requireOption('signing-key', values['signing-key'])),
    projectName: values['project-name'],
    pluginsDirname: values['plugins-dirname'],
    sources: values.sources === undefined ? undefined : readSourceRegistry(values.sources),
    builtAt: parseBuiltAt(values['built-at']),
  })
  for (const path of sealed.leftOut) console.error(`Left out: ${path}`)
  return sealed
}

function parseBuiltAt(text: string | undefined): Date | undefined {
  if (text === undefined) return parseEpoch(process.env['SOURCE_DATE_EPOCH'])
  const time = new Date(text)
  if (timeSchema.safeParse(text).success && isInManifests(time)) return time
  throw new UsageError(
    `The option --built-at must be an ISO 8601 date from 1970 to ${LAST_YEAR}, such as 2026-01-02, or such a date and time with Z or an offset, such as 2026-01-02T03:04:05Z, not ${JSON.stringify(text)}.`,
  )
}

function parseEpoch(seconds: string | undefined): Date | undefined {
  if (!seconds) return undefined
  const time = new Date(Number(seconds) * 1000)
  if (/^\d+$/.test(seconds) && isInManifests(time)) return time
  throw new UsageError(
    `The environment variable SOURCE_DATE_EPOCH must be the number of seconds since 1970 in digits, up to the year ${LAST_YEAR}, not ${JSON.stringify(seconds)}: correct it or unset it.`,
  )
}

function isInManifests(time: Date): boolean {
  return time.getTime() >= 0 && time.getUTCFullYear() <= LAST_YEAR
}

export const seal: Command = {
  summary: 'seals a source folder into a file, to publish elsewhere or later',
  usage: `npm run hub -- project seal --source DIR --version V --signing-key FILE [options]

${SEAL_USAGE}
  --out FILE             the sealed file (default P-V.sealed)

Sealing leaves out, and lists, version control, dependencies, caches, .env (not .env.template), private keys, credential
files, and files outside the project's folders. It also writes FILE.release.json, which contains the key of the sealed
file: give FILE.release.json only to the publisher.`,
  run: async args => {
    const { values } = parseCommandLine(args, { ...SEAL_OPTIONS, out: { type: 'string' } })
    const sealed = await sayingStillRunning('Sealing', () => sealSource(values))
    const { project_id, version, signer_public_key } = sealed.release
    const out = values.out ?? `${project_id}-${version}.sealed`
    requireOutside(requireOption('source', values.source), out)
    writeSealedFile(out, sealed)
    console.log(`Sealed the project ${project_id} ${version} into ${out}: ${sealed.bytes.length} bytes`)
    console.log(`Signed by ${signer_public_key}. ${releasePath(out)} contains the key of ${out}: keep it secret.`)
  },
}

/** Refuses a sealed file in the source folder, because the next run could seal it again as part of the project. */
function requireOutside(source: string, out: string): void {
  const [folder, target] = [followFolder(source), join(followFolder(dirname(out)), basename(out))]
  const way = relative(folder, target)
  if (way === '..' || way.startsWith('../') || resolve(way) === way) return
  throw new UsageError(`The option --out must name a file outside the source folder ${source}, not ${out}.`)
}

function followFolder(path: string): string {
  try {
    return realpathSync(path)
  } catch {
    return resolve(path)
  }
}

const OPTIONS = {
  data: { type: 'string' },
  'hub-url': { type: 'string' },
  'devkey-env': { type: 'string' },
  ...SEAL_OPTIONS,
  sealed: { type: 'string' },
} as const
type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

export const publishRelease: Command = {
  summary: 'publishes a version, from a source folder or a sealed file',
  usage: `npm run hub -- project publish --source DIR --version V --signing-key FILE [options]
npm run hub -- project publish --sealed FILE [options]

  --sealed FILE          a file that "project seal" wrote; needs FILE.release.json next to it
${SEAL_USAGE}
  --data DIR             the data folder (default ${DATA_DEFAULT})

To publish to a running hub instead:
  --hub-url URL          its base URL, which may include a path
  --devkey-env VAR       the environment variable with a dev key from "project devkey --publish"`,
  run: async args => {
    const { values } = parseCommandLine(args, OPTIONS)
    const publishTo = chooseHub(values)
    const [{ release }, published] = await sayingStillRunning('Publishing', async () => {
      const sealed = await readSealed(values)
      return [sealed, await publishTo(sealed)] as const
    })
    const { version, size, sha256, revoked_at } = published
    const { project_id, signer_public_key } = release
    console.log(`Published the project ${project_id} ${version}: ${size} bytes, SHA-256 ${sha256}`)
    console.log(`Every host must pin this signer-public-key: ${signer_public_key}`)
    if (revoked_at !== null)
      console.error('Note: this version is revoked, so the hub does not release its key: publish a new version.')
  },
}

function chooseHub(values: Values): (sealed: SealedRelease) => Promise<Published> {
  const { data, 'hub-url': hubUrl, 'devkey-env': variable } = values
  if (hubUrl === undefined && variable === undefined)
    return sealed =>
      withStore(data ?? DATA_OPTION.data.default, store => publishProject(store, sealed, requireDeployableProject))
  if (hubUrl === undefined || variable === undefined || data !== undefined)
    throw new UsageError('Name a running hub with --hub-url and --devkey-env, or a data folder with --data.')
  const devkey = readSecretVariable({ option: 'devkey-env', variable, purpose: 'dev key' })
  return sealed => sendPublication({ hubUrl, devkey }, sealed)
}

async function readSealed(values: Values): Promise<SealedRelease> {
  const { sealed, data: _, 'hub-url': __, 'devkey-env': ___, ...sealing } = values
  if (sealed === undefined) return await sealSource(sealing)
  const [superfluous] = Object.keys(sealing)
  if (superfluous === undefined) return readSealedFile(sealed)
  throw new UsageError(
    `The option --${superfluous} does not apply to --sealed, because that file is already sealed: remove the option.`,
  )
}

export const keygen: Command = {
  summary: 'creates a key to sign sealed projects',
  usage: `npm run hub -- project keygen --out FILE

  --out FILE       the file for the private key (PEM, mode 0600); must not exist yet

Standard output gets the public key and nothing else. Hosts pin it as signer-public-key.
${SILENT_USAGE}`,
  run: async args => {
    const { values } = parseCommandLine(args, { out: { type: 'string' } })
    const out = requireOption('out', values.out)
    const key = createSigningKey(out)
    console.error(`The private key is in ${out}: keep it safe and secret. The public key is:`)
    console.log(signerPublicKey(key))
  },
}

/** The path of a sealed file's release, a file next to it. Publishing needs the release, which contains the DEK. */
export function releasePath(file: string): string {
  return `${file}.release.json`
}

/**
 * Writes a sealed file, and next to it its release, which only the user can read. Writes both or none. Throws HubError
 * 400 if one of them already exists or cannot be written.
 */
export function writeSealedFile(file: string, { bytes, release }: SealedRelease): void {
  writeNewFile(releasePath(file), `${JSON.stringify(release, null, 2)}\n`, 0o600)
  try {
    writeNewFile(file, bytes)
  } catch (error) {
    rmSync(releasePath(file), { force: true })
    throw error
  }
}

/** Throws HubError 400 if one of the two files is missing or cannot be read, or if the release is invalid. */
export function readSealedFile(file: string): SealedRelease {
  const [bytes, release] = [readPart(file), readPart(releasePath(file))]
  try {
    return { bytes, release: parseInput(releaseSchema, JSON.parse(release.toString('utf8'))) }
  } catch (error) {
    const problem = error instanceof Error ? error.message : error
    throw new HubError(
      400,
      `The file ${releasePath(file)} is invalid (${problem}): seal the project again with "project seal".`,
    )
  }
}

function readPart(path: string): Buffer {
  try {
    return readFileSync(path)
  } catch (error) {
    throw new HubError(400, `The file ${path} ${unreadable(error, 'create it with "project seal"')}.`)
  }
}
