import { isUtf8 } from 'node:buffer'
import { posix } from 'node:path'
import { type Document, isMap, isScalar, LineCounter, parseDocument, type Scalar, visit } from 'yaml'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import {
  MAX_ALIASES,
  MAX_PLUGIN_YAML_BYTES,
  readText,
  readVersion,
  requireShallowYaml,
  requireYamlSize,
  STRANGE,
} from '../yaml.ts'

export const PLUGIN_YAML = 'plugin.yaml'

/** The execution modes for which hosts sign the files below the directory of the entry point. */
const SIGNED_MODES: ReadonlySet<string> = new Set(['trusted', 'ephemeral'])
const outside = (key: string): string => `has an ${key} that is not a path inside the plugin`

const names = z.array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/)).nullish()
/** The fields that clients read, apart from the name and the version. Other keys are the plugin's own. */
const pluginSchema = z.object({
  execution_mode: z.string().nullish(),
  entry_point: z.string().min(1).nullish(),
  environment: z.object({ required: names, optional: names }).nullish(),
  envconfiguration: z.object({ env_file: z.string().optional() }).optional().catch(undefined),
})

const EXPECTED: Readonly<Record<string, string>> = {
  execution_mode: 'one word',
  entry_point: 'a path',
  environment: 'a map with the lists "required" and "optional" of names, such as [GREETER_TOKEN]',
}

/** The name and the version in a plugin's own description. */
export interface PluginYaml {
  readonly name: string | undefined
  readonly version: string | undefined
}

/** Throws HubError 400 for a file that clients refuse, or could read in two ways. */
export function readPluginYaml(bytes: Buffer): PluginYaml {
  requireYamlSize(PLUGIN_YAML, bytes.length, MAX_PLUGIN_YAML_BYTES)
  const document = parse(textOf(bytes))
  const { success, data, error } = pluginSchema.safeParse(plainValueOf(document))
  if (!success) throw refused(describeIssue(error.issues[0]?.path ?? []))
  const { execution_mode: mode, entry_point: entryPoint, environment, envconfiguration } = data
  if (SIGNED_MODES.has(mode?.toLowerCase() ?? '') && !isInside(entryPoint ?? '')) throw refused(outside('entry_point'))
  if (!isInside(envconfiguration?.env_file ?? '')) throw refused(outside('env_file'))
  const texts = [mode && ['execution_mode'], entryPoint && ['entry_point']].filter(path => Array.isArray(path))
  const names = (['required', 'optional'] as const).flatMap(list =>
    (environment?.[list] ?? []).map((_, index) => ['environment', list, index]),
  )
  for (const path of [...texts, ...names]) readText(document, path, PLUGIN_YAML)
  return { name: readText(document, ['name'], PLUGIN_YAML), version: readVersion(document, PLUGIN_YAML) }
}

function describeIssue(path: readonly PropertyKey[]): string {
  const expected = EXPECTED[String(path[0])]
  return `has a value at ${path.join('.')} that hosts refuse${expected === undefined ? '' : `, because ${path.length > 1 ? String(path[0]) : 'it'} must be ${expected}`}`
}

function isInside(entryPoint: string): boolean {
  return (
    !posix.isAbsolute(entryPoint) &&
    !/[\\\0]/.test(entryPoint) &&
    !posix.normalize(entryPoint).split('/').includes('..')
  )
}

function textOf(bytes: Buffer): string {
  if (!isUtf8(bytes)) throw refused('is not UTF-8')
  const text = bytes.toString('utf8').replace(/^\uFEFF/, '')
  const { index } = STRANGE.exec(text) ?? {}
  if (index !== undefined)
    throw refused(
      `has a character in line ${text.slice(0, index).split('\n').length} that some YAML parsers refuse or interpret differently`,
    )
  return text
}

function parse(text: string): Document.Parsed {
  requireShallowYaml(text, PLUGIN_YAML)
  const lines = new LineCounter()
  const options = { logLevel: 'error', prettyErrors: false, uniqueKeys: false, lineCounter: lines } as const
  const document = parseDocument(text, options)
  const [error] = document.errors
  if (error !== undefined) {
    const { line } = lines.linePos(error.pos[0])
    const problem = error.code === 'MULTIPLE_DOCS' ? 'has a second document' : 'is not valid YAML'
    throw refused(`${problem} in line ${line}`)
  }
  if (!isMap(document.contents))
    throw new HubError(400, `${PLUGIN_YAML} must contain "key: value" lines, such as "version: 1.0.0".`)
  requirePlainKeys(document, lines)
  return document
}

/**
 * Refuses duplicate keys (other parsers use the last one), merge keys (their meaning depends on the parser), keys that
 * are not scalars, and too many aliases.
 */
function requirePlainKeys(document: Document.Parsed, lines: LineCounter): void {
  let aliases = 0
  visit(document, {
    Alias: () => {
      aliases++
      if (aliases > MAX_ALIASES) throw refused(`has more than ${MAX_ALIASES} aliases (*)`)
    },
    Map: (_, { items, range }) => {
      const seen = new Set<string>()
      for (const { key } of items) {
        const { line } = lines.linePos((isScalar(key) ? key.range : range)?.[0] ?? 0)
        if (!isScalar(key)) throw refused(`has a list, a map or an alias as a key in line ${line}`)
        if (isMergeKey(key)) throw refused(`has a merge key (<<) in line ${line}, which not all YAML parsers support`)
        if (seen.has(String(key.value))) throw refused(`repeats a key in line ${line}`)
        seen.add(String(key.value))
      }
    },
  })
}

function isMergeKey({ value, type, tag }: Scalar): boolean {
  return typeof value === 'symbol' || (value === '<<' && type === 'PLAIN') || tag === 'tag:yaml.org,2002:merge'
}

function plainValueOf(document: Document.Parsed): unknown {
  try {
    return document.toJS({ maxAliasCount: MAX_ALIASES })
  } catch {
    throw refused('has an alias (*) without its anchor, or too many aliases')
  }
}

function refused(problem: string): HubError {
  return new HubError(400, `${PLUGIN_YAML} ${problem}: correct it.`)
}
