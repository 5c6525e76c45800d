import { type Document, isScalar } from 'yaml'
import { z } from 'zod/mini'
import { ArtifactError } from '../errors.ts'
import { PLUGIN_YAML_LIMITS } from '../identifiers.ts'
import { cleanForeignText } from '../text.ts'
import {
  isTextForAll,
  isTrueInPython,
  nodeAt,
  readStrictYaml,
  type StrictYaml,
  StrictYamlProblem,
} from '../yaml/strict.ts'

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
  /**
   * The file that contains the only settings that the host framework gives the plugin, as a path in the plugin's own
   * directory; undefined if the framework injects no settings.
   */
  envFile: string | undefined
  needs: PluginNeeds
}

/** A plugin that another plugin requires, and the condition on its version, such as `>=2.0,<3.0`. */
interface RequiredPlugin {
  readonly name: string
  readonly version: string | undefined
}

/** What must be so for the host framework to load a plugin, as far as it is readable: nothing here is refused. */
export interface PluginNeeds {
  /** The condition on the framework's version. */
  readonly frameworkVersion: string | undefined
  readonly requires: readonly RequiredPlugin[]
  /** The variables that `env` takes from the framework's own environment, as `${NAME}`. */
  readonly variables: readonly string[]
}

/** What the host runs if plugin.yaml names no `entry_point`. */
export const DEFAULT_ENTRY_POINT = 'src/main.py'
const DEFAULT_ENV_FILE = '.env'
/** The files that describe a plugin: none of them can be its settings. */
const DESCRIPTIONS: readonly string[] = ['plugin.yaml', 'plugin.json', 'plugin.sig']

/** More digits than this are not the same number in every reader. */
const MAX_VERSION_DIGITS = 15

const variableNames = z.nullish(z.array(z.string().check(z.regex(/^[^\r\n]+$/))))
/** Without `name` and `version`, whose characters count. */
const schema = z.object({
  execution_mode: z.nullish(z.string()),
  entry_point: z.nullish(z.string().check(z.minLength(1))),
  environment: z.nullish(z.object({ required: variableNames, optional: variableNames })),
})
const EXPECTED: Readonly<Record<string, string>> = {
  execution_mode: 'text',
  entry_point: 'a path',
  environment: 'a map with the lists "required" and "optional" of names',
}
const ENV_FILE = ['envconfiguration', 'env_file'] as const

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
  const outside = envFileProblem(yaml, parsed.data)
  if (outside !== undefined) throw notAPlugin(outside)
  return toPluginYaml(parsed.data, yaml)
}

/**
 * Returns why `parsePluginYaml` refuses this file, as the end of a sentence about the file; undefined if it does not.
 */
export function pluginYamlProblem(yaml: StrictYaml): string | undefined {
  const { data, error } = schema.safeParse(yaml.value)
  return error === undefined ? (unlikeTextProblem(yaml, data) ?? envFileProblem(yaml, data)) : problemOf(error)
}

/** Returns what is wrong with the first value that is not the same text, or version, for all readers. */
function unlikeTextProblem({ document }: StrictYaml, { environment, ...data }: Fields): string | undefined {
  const names = (['required', 'optional'] as const).flatMap(list =>
    (environment?.[list] ?? []).map((_, index) => ['environment', list, index] as const),
  )
  const texts = (['execution_mode', 'entry_point'] as const).filter(key => (data[key] ?? undefined) !== undefined)
  const envFile = injectsEnv(document) ? [ENV_FILE] : []
  for (const path of [['name'], ['version'], ...texts.map(key => [key]), ...names, ...envFile]) {
    const node = nodeAt(document, path)
    const isVersion = path[0] === 'version'
    if (node === undefined || isTextForAll(node) || (isVersion && isCanonicalNumber(node))) continue
    const except = isVersion ? `, nor a plain number of at most ${MAX_VERSION_DIGITS} digits` : ''
    return `has a value at ${path.join('.')} that is not text for every YAML parser${except} (quote it)`
  }
  return undefined
}

type Fields = z.infer<typeof schema>

/** True if the host framework injects settings: Python decides, so even the text "false" counts as true. */
function injectsEnv(document: Document.Parsed): boolean {
  return isTrueInPython(nodeAt(document, ['envconfiguration', 'inject']))
}

/** Refuses settings outside the plugin, and in a place where an update would keep the old code or description. */
function envFileProblem({ document }: StrictYaml, { entry_point: entryPoint }: Fields): string | undefined {
  const envFile = injectsEnv(document) ? writtenEnvFile(document) : DEFAULT_ENV_FILE
  const path = withoutDots(envFile)
  const isFile = !/^\/|\/\.?$|[\\\p{Cc}]/u.test(envFile) && path !== '' && !path.split('/').includes('..')
  const code = [...DESCRIPTIONS, withoutDots(entryPoint ?? DEFAULT_ENTRY_POINT)]
  if (isFile && !code.some(file => `${file}/`.startsWith(`${path}/`))) return undefined
  return `has an unexpected ${ENV_FILE.join('.')} (it must be the path of a file for settings inside the plugin)`
}

function writtenEnvFile(document: Document.Parsed): string {
  const node = nodeAt(document, ENV_FILE)
  if (node === undefined) return DEFAULT_ENV_FILE
  return isTextForAll(node) ? node.value : ''
}

/** Returns a relative path without empty parts and `.`. */
function withoutDots(path: string): string {
  return path
    .split('/')
    .filter(part => part !== '' && part !== '.')
    .join('/')
}

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

function toPluginYaml(data: Fields, { document, value }: StrictYaml): PluginYaml {
  return {
    name: printedBy(nodeAt(document, ['name'])),
    version: printedBy(nodeAt(document, ['version'])),
    executionMode: data.execution_mode ?? undefined,
    entryPoint: data.entry_point ?? undefined,
    environment: {
      required: data.environment?.required ?? [],
      optional: data.environment?.optional ?? [],
    },
    envFile: injectsEnv(document) ? withoutDots(writtenEnvFile(document)) : undefined,
    needs: toNeeds(needsSchema.parse(value)),
  }
}

/** A value with the wrong type says nothing. */
function orNothing<Schema extends z.ZodMiniType>(schema: Schema) {
  return z.catch(z.optional(schema), undefined)
}

const condition = orNothing(z.pipe(z.union([z.string(), z.number()]), z.transform(String)))
const needsSchema = z.object({
  framework_version: condition,
  requires: orNothing(z.array(orNothing(z.union([z.string(), z.object({ name: z.string(), version: condition })])))),
  env: orNothing(z.record(z.string(), z.unknown())),
})

function toNeeds({ framework_version: frameworkVersion, requires = [], env = {} }: z.infer<typeof needsSchema>) {
  const required = requires.flatMap(one =>
    typeof one === 'string' ? [{ name: one, version: undefined }] : (one ?? []),
  )
  const variables = Object.values(env).flatMap(text =>
    typeof text === 'string' ? (VARIABLE.exec(text)?.[1] ?? []) : [],
  )
  return {
    frameworkVersion,
    requires: required.map(({ name, version }) => ({ name, version })),
    variables: [...new Set(variables)],
  }
}

const VARIABLE = /^\$\{(.+)\}$/

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
 * Reads a host framework's own configuration file, YAML or JSON. Returns `plugins.directory` as it is written, or
 * undefined if the file names none. Throws an Error whose message continues a sentence that begins with the file's
 * name.
 */
export function parseIntegration(text: string, format: 'yaml' | 'json'): string | undefined {
  const value = format === 'json' ? parseJson(text) : readStrictYaml(text, PLUGIN_YAML_LIMITS).value
  const plugins = expect(rootSchema, value, 'must be a map')?.plugins
  const directory = expect(pluginsSchema, plugins, 'must have a map as "plugins"')?.directory
  return expect(directorySchema, directory, 'must have text as plugins.directory') ?? undefined
}

/** Quotes nothing from the file, which may contain secrets. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new Error('is not valid JSON')
  }
}

function expect<Schema extends z.ZodMiniType>(schema: Schema, value: unknown, rule: string): z.infer<Schema> {
  const parsed = schema.safeParse(value)
  if (!parsed.success) throw new Error(rule)
  return parsed.data
}
