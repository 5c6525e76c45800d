import AdmZip from 'adm-zip'
import { isScalar, parseDocument } from 'yaml'

const PLUGIN_YAML = /^(?:[^/]+\/)?plugin\.yaml$/

/**
 * The version in a ZIP's `plugin.yaml`, exactly as written; undefined if it cannot be read. The file may be at the top
 * or in a top-level directory, which extraction flattens (contract 4.3, rule 5).
 */
export function readPackagedVersion(bytes: Buffer): string | undefined {
  try {
    const found = new AdmZip(bytes).getEntries().filter(({ entryName }) => PLUGIN_YAML.test(entryName))
    const [shortest] = found.sort((a, b) => a.entryName.length - b.entryName.length)
    const node = parseDocument(shortest?.getData().toString() ?? '', { logLevel: 'silent' }).get('version', true)
    return isScalar(node) && node.value !== null ? (node.source ?? String(node.value)) : undefined
  } catch {
    return undefined
  }
}
