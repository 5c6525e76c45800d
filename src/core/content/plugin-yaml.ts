import { type Document, isAlias, isMap, isScalar, type Scalar, visit } from 'yaml'
import { z } from 'zod/mini'
import { type ComposedYaml, composeYaml } from '../document/compose-yaml.ts'
import { ambiguousCharacter, unreadableCharacter } from '../document/unreadable-character.ts'
import { ArtifactError } from '../errors.ts'
import { cleanForeignText } from '../foreign-text.ts'
import { PLUGIN_YAML_LIMITS } from '../limits.ts'
import { runToEnd } from '../pausing-work.ts'

/** The variables that a plugin declares under `environment`. */
export interface VariableNames {
  readonly required: readonly string[]
  readonly optional: readonly string[]
}

/** What we read of a plugin's own description; other keys are ignored. */
export interface PluginYaml {
  name: string | undefined
  /** As a Python host prints it: `1.0` is `1.0`, an unquoted `1.10` is `1.1`. */
  version: string | undefined
  /** Its exact characters in the file. */
  versionAsWritten: string | undefined
  executionMode: string | undefined
  entryPoint: string | undefined
  environment: VariableNames
}

/** Enough for honest use of anchors, too little for a bomb. */
const MAX_ALIAS_COUNT = 100

const variableNames = z.nullish(z.array(z.string().check(z.regex(/^[^\r\n]+$/))))
const schema = z.object({
  name: z.nullish(z.pipe(z.union([z.string(), z.number()]), z.transform(String))),
  version: z.nullish(z.union([z.string(), z.number()])),
  execution_mode: z.nullish(z.string()),
  entry_point: z.nullish(z.string().check(z.minLength(1))),
  environment: z.nullish(z.object({ required: variableNames, optional: variableNames })),
})

/**
 * Parses a plugin's `plugin.yaml`. Throws ArtifactError `not_a_plugin` when it is not a YAML mapping or one of the
 * fields that we read has a type that the host does not expect; `invalid_manifest` when it exceeds
 * `PLUGIN_YAML_LIMITS`, or when the host's reader (of YAML 1.1) could read something else than we do. Unknown keys are
 * fine.
 */
export function parsePluginYaml(text: string): PluginYaml {
  refuseAmbiguousText(text)
  const document = readDocument(
    runToEnd(composeYaml(text.replace(/^\uFEFF/, ''), PLUGIN_YAML_LIMITS, { uniqueKeys: false })),
  )
  refuseAmbiguousNodes(document)
  const parsed = schema.safeParse(toPlainValue(() => document.toJS({ maxAliasCount: MAX_ALIAS_COUNT })))
  if (!parsed.success) {
    const issue = parsed.error.issues[0]
    throw notAPlugin(`has an unexpected ${cleanForeignText(issue?.path.join('.') || 'content')}`)
  }
  return toPluginYaml(parsed.data, versionSourceOf(document))
}

function refuseAmbiguousText(text: string): void {
  if (Buffer.byteLength(text) > PLUGIN_YAML_LIMITS.bytes)
    throw invalid(`must be at most ${PLUGIN_YAML_LIMITS.bytes} bytes, found more`)
  const stranger = unreadableCharacter(text) ?? ambiguousCharacter(text)
  if (stranger !== undefined) throw invalid(`must not contain what readers of YAML do not agree on, found ${stranger}`)
}

function readDocument({ document, complaints }: ComposedYaml): Document.Parsed {
  const excess = complaints.find(({ code }) => code === 'RESOURCE_EXHAUSTION')
  if (excess !== undefined) throw invalid(`must be simple enough to read, found ${excess.message}`)
  const mistake = complaints.find(({ isWarning }) => !isWarning)
  if (mistake !== undefined || document === undefined)
    throw notAPlugin(`is not valid YAML (${cleanForeignText(mistake?.message ?? 'no document')})`)
  return document
}

/** Of two equal keys the host takes the last one, and what a merge key means depends on the reader. */
function refuseAmbiguousNodes(document: Document.Parsed): void {
  let aliases = 0
  visit(document, {
    Alias: () => {
      aliases++
      if (aliases > MAX_ALIAS_COUNT)
        throw invalid(`must be simple enough to read, found more than ${MAX_ALIAS_COUNT} aliases`)
    },
    Map: (_, { items }) => refuseAmbiguousKeys(items.map(({ key }) => key)),
  })
}

function refuseAmbiguousKeys(keys: readonly unknown[]): void {
  const seen = new Set<string>()
  for (const key of keys) {
    if (!isScalar(key)) throw invalid('must have plain keys, found a list, a map or an alias as a key')
    if (isMergeKey(key)) throw invalid('must not use merge keys (<<): write the keys out')
    const name = String(key.value)
    if (seen.has(name)) throw invalid(`must have each key once, found "${cleanForeignText(name, 60)}" twice`)
    seen.add(name)
  }
}

function isMergeKey({ value, type, tag }: Scalar): boolean {
  return typeof value === 'symbol' || (value === '<<' && type === 'PLAIN') || tag === 'tag:yaml.org,2002:merge'
}

/** The version's own characters, which a number does not keep. */
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
  }
}

function asPythonPrints(value: number, source: string | undefined): string {
  const isFloat = source !== undefined && /[.eE]/.test(source) && !/^0x/i.test(source)
  return isFloat && Number.isInteger(value) && Math.abs(value) < 1e16 ? value.toFixed(1) : String(value)
}

function toPlainValue(read: () => unknown): unknown {
  try {
    return read()
  } catch (error) {
    throw notAPlugin(`cannot be read (${cleanForeignText(error instanceof Error ? error.message : String(error))})`)
  }
}

function notAPlugin(what: string): ArtifactError {
  return new ArtifactError('not_a_plugin', refusal(what, '; for a service set kind: service'))
}

function invalid(rule: string): ArtifactError {
  return new ArtifactError('invalid_manifest', refusal(rule))
}

function refusal(what: string, hint = ''): string {
  return `The artifact's plugin.yaml ${what}: nothing was installed. The publisher must fix it${hint}.`
}
