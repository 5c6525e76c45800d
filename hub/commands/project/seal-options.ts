import { UsageError } from '../../errors.ts'
import { labelSchema } from '../../names.ts'
import { pluginsDirnameSchema, projectIdSchema, projectVersionSchema } from '../../project/names.ts'
import { type SealedProject, sealProject } from '../../project/seal.ts'
import { readSigningKey } from '../../project/signing-key.ts'
import { requireForm, requireOption } from '../command-line.ts'

export const SEAL_OPTIONS = {
  source: { type: 'string' },
  'project-id': { type: 'string' },
  version: { type: 'string' },
  'signing-key': { type: 'string' },
  'project-name': { type: 'string' },
  'plugins-dirname': { type: 'string' },
  'built-at': { type: 'string' },
} as const

export const SEAL_USAGE = `  --source DIR           the folder with plugins/, extensions/ and deployment/install.yaml; it is only read
  --version V            the project's version (semver)
  --signing-key FILE     the private key (Ed25519) from "project keygen"

  --project-id P         the project's id (default: project_id in the plan)
  --project-name N       the display name (default: the id)
  --plugins-dirname D    the folder of the plugins in the source (default plugins)
  --built-at TIME        ISO 8601 (default: SOURCE_DATE_EPOCH if set, else now)`

type SealValues = { readonly [name in keyof typeof SEAL_OPTIONS]?: string | undefined }

/**
 * Seals according to the options, and lists the omitted paths on standard error. Throws UsageError, and as sealProject
 * does.
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
    builtAt: parseBuiltAt(values['built-at']),
  })
  for (const path of sealed.leftOut) console.error(`Left out: ${path}`)
  return sealed
}

function parseBuiltAt(text: string | undefined): Date | undefined {
  const epoch = process.env['SOURCE_DATE_EPOCH']
  if (text === undefined && !epoch) return undefined
  const time = text === undefined ? new Date(Number(epoch) * 1000) : new Date(text)
  if (time.getTime() >= 0) return time
  const rule =
    text === undefined
      ? 'The environment variable SOURCE_DATE_EPOCH must be the number of seconds since 1970'
      : 'The option --built-at must be an ISO 8601 time after 1970'
  throw new UsageError(`${rule}, not ${JSON.stringify(text ?? epoch)}.`)
}
