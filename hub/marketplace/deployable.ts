import { isMap, isScalar, parseDocument } from 'yaml'
import { z } from 'zod'
import { MAX_ARCHIVE_BYTES } from '../archive/archive-entry.ts'
import { requireSafeTree } from '../archive/entries.ts'
import { openZip } from '../archive/zip-entries.ts'
import { HubError } from '../errors.ts'
import type { Kind } from '../names.ts'
import { MAX_PLUGIN_YAML_BYTES, requireYamlSize } from '../yaml-document.ts'

const PLUGIN_YAML = 'plugin.yaml'

/** What clients read of a plugin's description; other keys are its own. */
const names = z.array(z.string()).nullish()
const pluginSchema = z.object({
  name: z.union([z.string(), z.number()]).nullish(),
  version: z.union([z.string(), z.number()]).nullish(),
  execution_mode: z.string().nullish(),
  entry_point: z.string().min(1).nullish(),
  environment: z.object({ required: names, optional: names }).nullish(),
})

/**
 * Throws HubError 400 for an archive that no deployment of this version would install: empty, too large, no ZIP, damaged,
 * unsafe to unpack; or, for a plugin, without a plugin.yaml that clients can read, or with one of another version. It is
 * a help for publishers: what a host accepts, only the host decides.
 */
export async function requireDeployable(
  bytes: Buffer,
  { kind, version }: { kind: Kind; version: string },
): Promise<void> {
  if (bytes.length === 0) throw new HubError(400, 'The archive is empty (0 bytes): pack it again.')
  if (bytes.length > MAX_ARCHIVE_BYTES)
    throw new HubError(
      400,
      `The archive has ${bytes.length} bytes, more than the ${MAX_ARCHIVE_BYTES} that hosts take by default: leave something out.`,
    )
  const zip = await openZip(bytes)
  const tree = requireSafeTree(zip.entries, { flattens: true })
  if (kind === 'service') return
  const found = tree.fileAt(PLUGIN_YAML)
  if (found === undefined)
    throw new HubError(
      400,
      `The archive has no ${PLUGIN_YAML} at its top, which every plugin needs: add one, or publish it with --kind service.`,
    )
  const text = await zip.read(found.name)
  requireYamlSize(found.name, text.length, MAX_PLUGIN_YAML_BYTES)
  requireSameVersion(parsePluginYaml(text.toString('utf8')), version)
}

/** The version as it is written and as a host prints it: `1.10` is `1.1` to some; undefined if there is none. */
function parsePluginYaml(text: string): readonly string[] | undefined {
  const document = parseDocument(text, { logLevel: 'silent' })
  const [error] = document.errors
  const line = error?.linePos?.[0].line
  if (error !== undefined)
    throw new HubError(
      400,
      `${PLUGIN_YAML} is not valid YAML${line === undefined ? '' : ` in line ${line}`}: correct it.`,
    )
  if (!isMap(document.contents))
    throw new HubError(400, `${PLUGIN_YAML} must contain "key: value" lines, as "version: 1.0.0".`)
  const { success, data, error: problem } = pluginSchema.safeParse(document.toJS())
  if (!success)
    throw new HubError(
      400,
      `${PLUGIN_YAML} has a value that no host expects at ${problem.issues[0]?.path.join('.')}: correct it.`,
    )
  if (data.version === null || data.version === undefined) return undefined
  const node = document.get('version', true)
  return [isScalar(node) ? (node.source ?? '') : '', String(data.version)]
}

function requireSameVersion(packaged: readonly string[] | undefined, version: string): void {
  if (packaged === undefined || packaged.some(name => withoutV(name) === withoutV(version))) return
  throw new HubError(
    400,
    `The version in ${PLUGIN_YAML} is ${packaged[0]}, but --version is ${version}: make them equal.`,
  )
}

function withoutV(version: string): string {
  return version.replace(/^v/, '')
}
