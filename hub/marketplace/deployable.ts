import { MAX_ARCHIVE_BYTES } from '../archive/archive-entry.ts'
import { requireSafeTree } from '../archive/entries.ts'
import { openZip } from '../archive/zip-entries.ts'
import { HubError } from '../errors.ts'
import type { Kind } from '../names.ts'
import { PLUGIN_YAML, readPackagedVersion } from './plugin-yaml.ts'

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
  requireSameVersion(readPackagedVersion(await zip.read(found.name)), version)
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
