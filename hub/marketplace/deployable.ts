import { MAX_ARCHIVE_BYTES } from '../archive/archive-entry.ts'
import { requireSafeTree } from '../archive/entries.ts'
import { openZip } from '../archive/zip-entries.ts'
import { HubError } from '../errors.ts'
import type { VersionId } from './catalogue.ts'
import { type GivenId, identifyPlugin, identifyService, requirePluginKind } from './identify.ts'
import { PLUGIN_YAML, readPluginYaml } from './plugin-yaml.ts'

/**
 * Which version the archive is; its plugin.yaml says what the publisher does not. Throws HubError 400 for an archive that
 * no deployment would install: empty, too large, no ZIP, damaged, unsafe to unpack, or with a plugin.yaml that clients
 * cannot read; and as requirePluginKind, identifyPlugin and identifyService do. It is a help for publishers: what a host
 * accepts, only the host decides.
 */
export async function requireDeployable(bytes: Buffer, given: GivenId): Promise<VersionId> {
  if (bytes.length === 0) throw new HubError(400, 'The archive is empty (0 bytes): pack it again.')
  if (bytes.length > MAX_ARCHIVE_BYTES)
    throw new HubError(
      400,
      `The archive has ${bytes.length} bytes, more than the ${MAX_ARCHIVE_BYTES} that hosts take by default: leave something out.`,
    )
  const zip = await openZip(bytes)
  const found = requireSafeTree(zip.entries, { flattens: true }).fileAt(PLUGIN_YAML)
  if (found === undefined) return identifyService(given)
  requirePluginKind(given)
  return identifyPlugin(given, readPluginYaml(await zip.read(found.name)))
}
