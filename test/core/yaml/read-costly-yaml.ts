import { parsePluginYaml } from '../../../src/core/content/plugin-yaml.ts'
import {
  BUNDLED_PLAN_LIMITS,
  OPERATOR_YAML_LIMITS,
  PLUGIN_YAML_LIMITS,
  type YamlLimits,
} from '../../../src/core/identifiers.ts'
import { parsePlan } from '../../../src/core/plan/plan.ts'
import { sampled } from '../../extent.ts'
import { COSTLY_SHAPES } from './costly-yaml.ts'

// Reads every costly text with the reader that the first argument names. Prints by how many megabytes the peak memory
// of the process has grown, and the length of the longest message.

const READERS: Readonly<Record<string, { limits: YamlLimits; read: (text: string) => unknown }>> = {
  'plugin.yaml': { limits: PLUGIN_YAML_LIMITS, read: parsePluginYaml },
  'a bundled plan': {
    limits: BUNDLED_PLAN_LIMITS,
    read: text => parsePlan(text, 'install.yaml', BUNDLED_PLAN_LIMITS),
  },
  'a plan': { limits: OPERATOR_YAML_LIMITS, read: text => parsePlan(text, 'install.yaml') },
}

const reader = READERS[process.argv[2] ?? '']
if (reader === undefined) throw new Error(`The readers are ${Object.keys(READERS).join(', ')}.`)
const before = process.resourceUsage().maxRSS
const lengths = sampled(Object.values(COSTLY_SHAPES), 30).flatMap(shape =>
  [1, 4].map(part => messageLength(reader.read, shape(Math.min(reader.limits.bytes, 64 * 1024) / part - 200))),
)
console.log(
  JSON.stringify({
    megabytes: Math.round((process.resourceUsage().maxRSS - before) / 1024),
    longestMessage: Math.max(...lengths),
  }),
)

function messageLength(read: (text: string) => unknown, text: string): number {
  // Frees the memory of the earlier texts.
  globalThis.gc?.()
  try {
    read(text)
    return 0
  } catch (error) {
    return error instanceof Error ? error.message.length : 0
  }
}
