import { z } from 'zod'
import { HubError } from '../errors.ts'
import { labelSchema, parseInput, versionSchema } from '../names.ts'
import { MAX_PLUGIN_YAML_BYTES, parseYamlDocument, readText, readVersion, requireYamlSize } from '../yaml-document.ts'

const namesSchema = z.preprocess(
  value => (value === '' || value === undefined ? [] : value),
  z.array(labelSchema, { error: 'must be a list of names' }),
)

const environmentSchema = z.object({ required: namesSchema, optional: namesSchema }, { error: 'must be a map' })

const descriptionSchema = z.object({
  version: versionSchema,
  environment: z.preprocess(value => (value === '' ? undefined : value), environmentSchema.optional()),
})

export type PluginDescription = z.output<typeof descriptionSchema>

/**
 * Reads the fields of a `plugin.yaml` for the manifest. Throws HubError 400, which names the `path`, for invalid YAML,
 * for a file that is larger than clients accept, for a field that is missing or wrong, and for a name or a version that
 * YAML parsers read differently.
 */
export function parsePluginDescription(text: string, path: string): PluginDescription {
  requireYamlSize(path, Buffer.byteLength(text), MAX_PLUGIN_YAML_BYTES)
  const document = parseYamlDocument(text, path, 'failsafe')
  const value: unknown = document.toJS({ maxAliasCount: 0 })
  readText(document, ['name'], path)
  readVersion(document, path)
  try {
    return parseInput(descriptionSchema, value)
  } catch (error) {
    throw new HubError(400, `${path}: ${error instanceof Error ? error.message : String(error)}`)
  }
}
