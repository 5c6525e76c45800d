import { z } from 'zod'
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
 * malformed option, and HubError as readSigningKey and sealProject do.
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
