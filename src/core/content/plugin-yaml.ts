import { type Document, isScalar } from 'yaml'
import { z } from 'zod/mini'
import { ArtifactError } from '../errors.ts'
import { PLUGIN_YAML_LIMITS, pluginsDirectorySchema } from '../identifiers.ts'
import { cleanForeignText } from '../text.ts'
import { isTextForAll, nodeAt, readStrictYaml, type StrictYaml, StrictYamlProblem } from '../yaml/strict.ts'

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
  executionMode: string | undefined
  entryPoint: string | undefined
  environment: VariableNames
  /** Whether the host framework gives the plugin only the settings in `.env`, in the plugin's own directory. */
  injectsEnv: boolean
}

/** More digits than this are not the same number in every reader. */
const MAX_VERSION_DIGITS = 15

const variableNames = z.nullish(z.array(z.string().check(z.regex(/^[^\r\n]+$/))))
/** Without `name` and `version`, whose characters count. */
const schema = z.object({
  execution_mode: z.nullish(z.string()),
  entry_point: z.nullish(z.string().check(z.minLength(1))),
  environment: z.nullish(z.object({ required: variableNames, optional: variableNames })),
  envconfiguration: z.optional(z.unknown()),
})
const EXPECTED: Readonly<Record<string, string>> = {
  execution_mode: 'text',
  entry_point: 'a path',
  environment: 'a map with the lists "required" and "optional" of names',
}
const injectingSchema = z.object({ inject: z.union([z.literal(true), z.string().check(z.regex(/^(?:yes|on|y)$/i))]) })

/**
 * Parses a plugin's `plugin.yaml`. Throws ArtifactError `not_a_plugin` if the text is not a YAML mapping, or if one of
 * the other fields above has a type that the host does not expect. Throws `invalid_manifest` if the text exceeds
 * `PLUGIN_YAML_LIMITS` or costs too much, or if the host's reader (of YAML 1.1) could find another structure, name,
 * version or other value of these fields in it. Ignores unknown keys.
 */
export function parsePluginYaml(text: string): PluginYaml {
  const yaml = readYaml(text)
  const parsed = schema.safeParse(yaml.value)
  if (!parsed.success) throw notAPlugin(problemOf(parsed.error))
  const problem = unlikeTextProblem(yaml, parsed.data)
  if (problem !== undefined) throw invalid(problem)
  return toPluginYaml(parsed.data, yaml.document)
}

/**
 * Returns why `parsePluginYaml` refuses this file, as the end of a sentence about the file; undefined if it does not.
 */
export function pluginYamlProblem(yaml: StrictYaml): string | undefined {
  const { data, error } = schema.safeParse(yaml.value)
  return error === undefined ? unlikeTextProblem(yaml, data) : problemOf(error)
}

/** Returns what is wrong with the first value that is not the same text, or version, for all readers. */
function unlikeTextProblem({ document }: StrictYaml, { environment, ...data }: Fields): string | undefined {
  const names = (['required', 'optional'] as const).flatMap(list =>
    (environment?.[list] ?? []).map((_, index) => ['environment', list, index] as const),
  )
  const texts = (['execution_mode', 'entry_point'] as const).filter(key => (data[key] ?? undefined) !== undefined)
  for (const path of [['name'], ['version'], ...texts.map(key => [key]), ...names]) {
    const node = nodeAt(document, path)
    const isVersion = path[0] === 'version'
    if (node === undefined || isTextForAll(node) || (isVersion && isCanonicalNumber(node))) continue
    const except = isVersion ? `, nor a plain number of at most ${MAX_VERSION_DIGITS} digits` : ''
    return `has a value at ${path.join('.')} that is not text for every YAML parser${except} (quote it)`
  }
  return undefined
}

type Fields = z.infer<typeof schema>

/** True for a number that every reader reads alike, and that Python prints without an exponent. */
function isCanonicalNumber(node: unknown): boolean {
  if (!isScalar(node) || node.type !== 'PLAIN' || node.tag !== undefined) return false
  const written = node.source ?? ''
  const isPlain = /^(?:0|[1-9]\d*)(?:\.\d+)?$/.test(written) && !written.startsWith('0.0000')
  return isPlain && written.replace('.', '').length <= MAX_VERSION_DIGITS
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

function toPluginYaml(data: Fields, document: Document.Parsed): PluginYaml {
  return {
    name: printedBy(nodeAt(document, ['name'])),
    version: printedBy(nodeAt(document, ['version'])),
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

/**
 * Returns a text, or a canonical number as Python prints it: with one digit after the point, or without final zeros.
 */
function printedBy(node: unknown): string | undefined {
  if (!isScalar(node)) return undefined
  return typeof node.value === 'string' ? node.value : node.source?.replace(/(\.\d+?)0+$/, '$1')
}

function notAPlugin(problem: string): ArtifactError {
  return new ArtifactError(
    'not_a_plugin',
    refusalSentence(problem, "; for a service, set kind: service (in a project's source, marketplace_kind: service)"),
  )
}

function invalid(rule: string): ArtifactError {
  return new ArtifactError('invalid_manifest', refusalSentence(rule))
}

function refusalSentence(problem: string, hint = ''): string {
  return `The artifact's plugin.yaml ${problem}, so the artifact was refused. The publisher must fix plugin.yaml${hint}.`
}

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
