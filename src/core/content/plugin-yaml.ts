import { type Document, isAlias, isMap, isScalar } from 'yaml'
import { z } from 'zod/mini'
import { readStrictYaml, type StrictYaml, StrictYamlProblem } from '../document/strict-yaml.ts'
import { ArtifactError } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'
import { PLUGIN_YAML_LIMITS } from '../limits.ts'

/** The variables that a plugin declares under `environment`. */
export interface VariableNames {
  readonly required: readonly string[]
  readonly optional: readonly string[]
}

/** The fields of a plugin's own description that this action reads; it ignores other keys. */
export interface PluginYaml {
  name: string | undefined
  /** The version as a Python host prints it: an unquoted `1.0` stays `1.0`, and an unquoted `1.10` becomes `1.1`. */
  version: string | undefined
  /** The characters of the version in the file, without quotes: `1.10` stays `1.10`. */
  versionAsWritten: string | undefined
  executionMode: string | undefined
  entryPoint: string | undefined
  environment: VariableNames
  /** Whether the host framework gives the plugin only the settings in `.env`, in the plugin's own directory. */
  injectsEnv: boolean
}

const variableNames = z.nullish(z.array(z.string().check(z.regex(/^[^\r\n]+$/))))
const schema = z.object({
  name: z.nullish(z.pipe(z.union([z.string(), z.number()]), z.transform(String))),
  version: z.nullish(z.union([z.string(), z.number()])),
  execution_mode: z.nullish(z.string()),
  entry_point: z.nullish(z.string().check(z.minLength(1))),
  environment: z.nullish(z.object({ required: variableNames, optional: variableNames })),
  envconfiguration: z.optional(z.unknown()),
})
const EXPECTED: Readonly<Record<string, string>> = {
  name: 'text',
  version: 'text or a number',
  execution_mode: 'text',
  entry_point: 'a path',
  environment: 'a map with the lists "required" and "optional" of names',
}
const injectingSchema = z.object({ inject: z.union([z.literal(true), z.string().check(z.regex(/^(?:yes|on|y)$/i))]) })

/**
 * Parses a plugin's `plugin.yaml`. Throws ArtifactError `not_a_plugin` if the text is not a YAML mapping, or if one of
 * the fields above has a type that the host does not expect. Throws `invalid_manifest` if the text exceeds
 * `PLUGIN_YAML_LIMITS` or costs too much, or if the host's reader (of YAML 1.1) could find another structure in it.
 * Ignores unknown keys.
 */
export function parsePluginYaml(text: string): PluginYaml {
  const { document, value } = readYaml(text)
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw notAPlugin(problemOf(parsed.error))
  return toPluginYaml(parsed.data, versionSourceOf(document))
}

/**
 * Returns why `parsePluginYaml` refuses a file with this value, as the end of a sentence about the file; undefined if
 * it does not.
 */
export function pluginYamlProblem(value: unknown): string | undefined {
  const { error } = schema.safeParse(value)
  return error && problemOf(error)
}

function problemOf({ issues }: { readonly issues: readonly z.core.$ZodIssue[] }): string {
  const path = issues[0]?.path ?? []
  return path.length === 0
    ? 'does not consist of lines "key: value", such as "version: 1.0.0"'
    : `has an unexpected ${cleanForeignText(path.join('.'))}${expectedAt(path)}`
}

function expectedAt([field]: readonly PropertyKey[]): string {
  const expected = EXPECTED[String(field)]
  return expected === undefined ? '' : ` (${String(field)} must be ${expected})`
}

function readYaml(text: string): StrictYaml {
  try {
    return readStrictYaml(text, PLUGIN_YAML_LIMITS)
  } catch (error) {
    if (!(error instanceof StrictYamlProblem)) throw error
    throw error.isAmbiguous ? invalid(error.message) : notAPlugin(error.message)
  }
}

/** Returns the version's characters in the file, which a parsed number does not preserve. */
function versionSourceOf(document: Document.Parsed): string | undefined {
  if (!isMap(document.contents)) return undefined
  const written = document.contents.items.findLast(({ key }) => isScalar(key) && key.value === 'version')?.value
  const node = isAlias(written) ? written.resolve(document) : written
  return isScalar(node) ? node.source : undefined
}

function toPluginYaml(data: z.infer<typeof schema>, versionSource: string | undefined): PluginYaml {
  const version = data.version ?? undefined
  return {
    name: data.name ?? undefined,
    version: typeof version === 'number' ? asPythonPrints(version, versionSource) : version,
    versionAsWritten: version === undefined ? undefined : (versionSource ?? String(version)),
    executionMode: data.execution_mode ?? undefined,
    entryPoint: data.entry_point ?? undefined,
    environment: {
      required: data.environment?.required ?? [],
      optional: data.environment?.optional ?? [],
    },
    // The host may read YAML 1.1, which has more words for true.
    injectsEnv: injectingSchema.safeParse(data.envconfiguration).success,
  }
}

function asPythonPrints(value: number, source: string | undefined): string {
  const isFloat = source !== undefined && /[.eE]/.test(source) && !/^0x/i.test(source)
  return isFloat && Number.isInteger(value) && Math.abs(value) < 1e16 ? value.toFixed(1) : String(value)
}

function notAPlugin(problem: string): ArtifactError {
  return new ArtifactError(
    'not_a_plugin',
    refusal(problem, "; for a service, set kind: service (in a project's source, marketplace_kind: service)"),
  )
}

function invalid(rule: string): ArtifactError {
  return new ArtifactError('invalid_manifest', refusal(rule))
}

function refusal(problem: string, hint = ''): string {
  return `The artifact's plugin.yaml ${problem}, so the artifact was refused. The publisher must fix plugin.yaml${hint}.`
}
