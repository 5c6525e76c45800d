import { setTimeout } from 'node:timers/promises'
import { UsageError } from '../../errors.ts'
import { requireDeployableProject } from '../../project/deployable-project.ts'
import { publishProject, type SealedRelease } from '../../project/publish.ts'
import { type Published, sendPublication } from '../../project/publishing/send-publication.ts'
import { type Command, DATA_DEFAULT, DATA_OPTION, withStore } from '../command.ts'
import { parseCommandLine } from '../command-line.ts'
import { readSecretVariable } from '../secret-variable.ts'
import { SEAL_OPTIONS, SEAL_USAGE, sealSource } from './seal-options.ts'
import { readSealedFile } from './sealed-file.ts'

const OPTIONS = {
  data: { type: 'string' },
  'hub-url': { type: 'string' },
  'devkey-env': { type: 'string' },
  ...SEAL_OPTIONS,
  sealed: { type: 'string' },
} as const
type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

export const publish: Command = {
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
    const sealed = await readSealed(values)
    const { version, size, sha256, revoked_at } = await publishTo(sealed)
    const { project_id, signer_public_key } = sealed.release
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
  return sealed => sendPublication({ hubUrl, devkey }, sealed, waitForHub)
}

async function waitForHub(ms: number): Promise<void> {
  console.error(`The hub answered 503, which usually means that it is busy: sending the file again in ${ms / 1000} s.`)
  await setTimeout(ms)
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
