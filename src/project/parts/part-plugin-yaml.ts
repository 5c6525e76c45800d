import type { PluginYaml } from '../../core/content/plugin-yaml.ts'
import { withSubject } from '../../core/errors.ts'
import { type PartName, placeName } from '../../install/host/layout.ts'
import { readPluginYaml } from '../../install/host/read-plugin-yaml.ts'

/** Reads the `plugin.yaml` of one of several parts, as `readPluginYaml` does, but names the part in each message. */
export function readPartPluginYaml(part: PartName, staged: string): PluginYaml {
  try {
    return readPluginYaml(staged)
  } catch (error) {
    throw withSubject(placeName(part), error)
  }
}
