import { MAX_ARCHIVE_BYTES } from '../archive/archive-entry.ts'
import { requireSafeTree } from '../archive/entries.ts'
import { openZip } from '../archive/zip-entries.ts'
import { HubError } from '../errors.ts'
import { type GivenId, type IdentifiedVersion, identifyPlugin, identifyService, requirePluginKind } from './identify.ts'
import { PLUGIN_YAML, readPluginYaml } from './plugin-yaml.ts'

const PROJECT_PLAN = 'deployment/install.yaml'

/**
 * Identifies the version in an archive. The archive's plugin.yaml provides the facts that the publisher did not give.
 * Throws HubError 400 for an archive that hosts refuse, at least by default: one that is empty, too large, not a ZIP,
 * damaged, or unsafe to unpack, or has a plugin.yaml that clients cannot read. If no kind is given, throws HubError 400
 * for a project. Also throws as requirePluginKind, identifyPlugin and identifyService do. This check only helps
 * publishers: each host decides for itself what it accepts.
 */
export async function requireDeployable(bytes: Buffer, given: GivenId): Promise<IdentifiedVersion> {
  if (bytes.length === 0) throw new HubError(400, 'The archive is empty (0 bytes): pack it again.')
  if (bytes.length > MAX_ARCHIVE_BYTES)
    throw new HubError(
      400,
      `The archive has ${bytes.length} bytes, more than the ${MAX_ARCHIVE_BYTES} that hosts accept by default: remove some files.`,
    )
  const zip = await openZip(bytes)
  const tree = requireSafeTree(zip.entries, { flattens: true })
  const found = tree.fileAt(PLUGIN_YAML)
  if (found === undefined && given.kind === undefined && tree.fileAt(PROJECT_PLAN) !== undefined)
    throw new HubError(
      400,
      `${given.source} is a project, because it has ${PROJECT_PLAN}: publish its folder with "project publish --source".`,
    )
  if (found === undefined) return identifyService(given)
  requirePluginKind(given)
  return identifyPlugin(given, readPluginYaml(await zip.read(found.name)))
}
