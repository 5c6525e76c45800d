import { UsageError } from '../../errors.ts'
import { publishProject, type SealedRelease } from '../../project/publish.ts'
import { type Command, DATA_OPTION, parseCommandLine, withStore } from '../command.ts'
import { SEAL_OPTIONS, SEAL_USAGE, sealSource } from './seal-options.ts'
import { readSealedFile } from './sealed-file.ts'

const OPTIONS = { ...DATA_OPTION, ...SEAL_OPTIONS, sealed: { type: 'string' } } as const
type Values = ReturnType<typeof parseCommandLine<typeof OPTIONS>>['values']

export const publish: Command = {
  summary: 'publishes a version, from a source folder or a sealed file',
  usage: `npm run hub -- project publish --source DIR --project-id P --version V --signing-key FILE [options]
npm run hub -- project publish --sealed FILE [options]

  --sealed FILE          a file that "project seal" has written; needs FILE.release.json next to it
${SEAL_USAGE}
  --data DIR             the data folder (default ${DATA_OPTION.data.default})`,
  run: async args => {
    const { values } = parseCommandLine(args, OPTIONS)
    const sealed = await readSealed(values)
    const published = await withStore(values.data, store => publishProject(store, sealed))
    const { project_id, version, size, sha256, signer_public_key } = published
    console.log(`Published the project ${project_id} ${version}: ${size} bytes, SHA-256 ${sha256}`)
    console.log(`Hosts pin this signer-public-key: ${signer_public_key}`)
  },
}

async function readSealed({ sealed, data: _, ...sealing }: Values): Promise<SealedRelease> {
  if (sealed === undefined) return await sealSource(sealing)
  const [superfluous] = Object.keys(sealing)
  if (superfluous === undefined) return readSealedFile(sealed)
  throw new UsageError(
    `The option --${superfluous} does not apply to --sealed, as that file is already sealed: remove it.`,
  )
}
