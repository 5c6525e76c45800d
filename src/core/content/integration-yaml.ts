import { z } from 'zod/mini'
import { readStrictYaml } from '../document/strict-yaml.ts'
import { cleanForeignText } from '../foreign-text.ts'
import { PLUGIN_YAML_LIMITS } from '../limits.ts'
import { pluginsDirectorySchema } from '../plugins-directory.ts'

const rootSchema = z.nullish(z.object({ plugins: z.optional(z.unknown()) }))
const pluginsSchema = z.nullish(z.object({ directory: z.optional(z.unknown()) }))
const directorySchema = z.nullish(z.string())

/**
 * Reads a host framework's own `integration.yaml`. Returns the directory in which the framework looks for plugins,
 * relative to the project root; undefined if the file names none. Throws an Error whose message continues a sentence
 * that begins with the file's name.
 */
export function parseIntegrationYaml(text: string): string | undefined {
  const { value } = readStrictYaml(text, PLUGIN_YAML_LIMITS)
  const plugins = expect(rootSchema, value, 'must be a map')?.plugins
  const directory = expect(pluginsSchema, plugins, 'must have a map as "plugins"')?.directory
  const written = expect(directorySchema, directory, 'must have text as plugins.directory')
  if (written === undefined || written === null) return undefined
  const found = pluginsDirectorySchema.safeParse(written.replace(/^(?:\.?\/+)+/, '').replace(/\/+$/, ''))
  if (found.success) return found.data
  const expected = found.error.issues[0]?.message ?? 'must be a relative path'
  throw new Error(`has a plugins.directory that ${expected}, but found "${cleanForeignText(written, 100)}"`)
}

function expect<Schema extends z.ZodMiniType>(schema: Schema, value: unknown, rule: string): z.infer<Schema> {
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw new Error(rule)
  return parsed.data
}
