import AdmZip, { type IZipEntry } from 'adm-zip'
import { isScalar, parseDocument } from 'yaml'
import { MAX_PLUGIN_YAML_BYTES, requireYamlSize } from '../yaml-document.ts'

const PLUGIN_YAML = /^(?:[^/]+\/)?plugin\.yaml$/

/**
 * The version in a ZIP's `plugin.yaml`, exactly as written; undefined if it cannot be read. The file may be at the top
 * or in a top-level directory, which extraction flattens (contract 4.3, rule 5).
 */
export function readPackagedVersion(bytes: Buffer): string | undefined {
  try {
    const node = parseDocument(findPluginYaml(bytes)?.getData().toString() ?? '', { logLevel: 'silent' }).get(
      'version',
      true,
    )
    return isScalar(node) && node.value !== null ? (node.source ?? String(node.value)) : undefined
  } catch {
    return undefined
  }
}

/** Throws HubError 400 for a ZIP whose `plugin.yaml` clients would refuse for its size. */
export function requireReadablePluginYaml(bytes: Buffer): void {
  const found = findPluginYaml(bytes)
  if (found !== undefined) requireYamlSize(found.entryName, found.header.size, MAX_PLUGIN_YAML_BYTES)
}

function findPluginYaml(bytes: Buffer): IZipEntry | undefined {
  const found = new AdmZip(bytes).getEntries().filter(({ entryName }) => PLUGIN_YAML.test(entryName))
  return found.sort((a, b) => a.entryName.length - b.entryName.length)[0]
}
