import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { unreadable } from '../files.ts'
import { kindSchema, slugSchema, versionSchema } from '../names.ts'
import { MAX_PLUGIN_YAML_BYTES, parseYamlDocument } from '../yaml.ts'
import type { Plan } from './plan.ts'
import { type FileMember, type Member, PLAN_PATH, type SourceTree } from './source-tree.ts'

const MAX_URL_CHARS = 2000

const subdirectory = z
  .string()
  .regex(/^(?=.{1,4096}$)(?:(?!\.{1,2}(?:\/|$))[^/\\\p{Cc}]+(?:\/|$))+$/u, {
    error: 'must be a relative path without "." or ".."',
  })
  .optional()

const partSourceSchema = z.union(
  [
    z.strictObject({
      marketplace_slug: slugSchema,
      marketplace_version: versionSchema.default('latest'),
      marketplace_kind: kindSchema.default('plugin'),
      subdirectory,
    }),
    z.strictObject({
      url: z
        .string()
        .refine(isPublicUrl, { error: 'must be an https URL without a user, password, query or fragment' }),
      ref: z
        .string()
        .toLowerCase()
        .regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/, { error: 'must be a full commit id' }),
      subdirectory,
    }),
  ],
  {
    error:
      'must have a valid marketplace_slug, or both an https url without a user, password, query or fragment and a full commit id as ref; a subdirectory must be a relative path without "." or ".."',
  },
)

/** The source of a part that the project does not contain. A step of the plan names it, and the manifest repeats it. */
export type PartSource = z.output<typeof partSourceSchema>

/** Ignores what packers write for every source: empty values, and the marketplace's defaults in a git source. */
function parseSource(written: object, label: string): PartSource {
  const isGit = 'url' in written && (written.url ?? '') !== ''
  const isEmpty = ([name, value]: [string, unknown]): boolean =>
    value === null || value === '' || (isGit && GIT_DEFAULTS[name] === value)
  const given = Object.fromEntries(Object.entries(written).filter(entry => !isEmpty(entry)))
  const { data, error } = partSourceSchema.safeParse(given)
  if (data !== undefined) return data
  const [{ path, message } = { path: [], message: 'cannot be used' }] = error?.issues ?? []
  throw new HubError(400, `${label}${path.length === 0 ? '' : `: ${path.join('.')}`} ${message}.`)
}

/** Throws HubError 400 for a source that hosts refuse: `sha256` may pin the tree of a branch or tag. */
export function requireFixedSource(written: object, part: string, sha256: string | undefined): void {
  const isNamed = sha256 !== undefined && 'ref' in written && typeof written.ref === 'string' && written.ref !== ''
  parseSource(isNamed ? { ...written, ref: '0'.repeat(40) } : written, `The source of ${part} in manifest.json`)
}

const GIT_DEFAULTS: Readonly<Record<string, string>> = { marketplace_version: 'latest', marketplace_kind: 'plugin' }

/** If a part has a source, only these files and its templates are sealed. */
const STUB_FILES = new Set(['plugin.yaml', 'service.yaml', 'extension.yaml'])

/** The source of each part that comes from elsewhere, by its path. */
export type PartSources = ReadonlyMap<string, PartSource>

/**
 * Returns the tree with only a stub of each part that comes from elsewhere. A part that has no folder in the source
 * folder gets an empty folder as its stub.
 */
export function withStubs(tree: SourceTree, sources: PartSources): SourceTree {
  const paths = [...sources.keys()]
  const partOf = (path: string): string | undefined => paths.find(part => path.startsWith(`${part}/`))
  const { true: kept = [], false: left = [] } = Object.groupBy(tree.members.values(), member => {
    const part = partOf(member.path)
    return String(part === undefined || isStub(member, part)) as 'true' | 'false'
  })
  const folders = paths.flatMap(path => path.split('/').map((_, index) => path.split('/', index + 1).join('/')))
  const made = folders.map(path => [path, { path, type: 'directory' }] as const)
  const members = new Map<string, Member>([...made, ...kept.map(member => [member.path, member] as const)])
  const of = (shelf: string, parts: readonly string[]): string[] =>
    [...new Set([...parts, ...paths.filter(path => path.startsWith(`${shelf}/`))])].sort()
  return {
    ...tree,
    members,
    plugins: of(tree.pluginsDirname, tree.plugins),
    extensions: of('extensions', tree.extensions),
    leftOut: [...tree.leftOut, ...left.filter(({ type }) => type !== 'directory').map(({ path }) => path)],
  }
}

function isStub({ path, type }: Member, part: string): boolean {
  return type === 'file' && (STUB_FILES.has(path.slice(part.length + 1)) || basename(path).endsWith('.template'))
}

/** True for a URL without secrets: everybody who may open the project can read its manifest. */
function isPublicUrl(text: string): boolean {
  const url = URL.parse(text)
  if (url === null || !/^https:\/\/[^/]/i.test(text) || url.href.length > MAX_URL_CHARS) return false
  const { username, password, search, hash } = url
  return `${username}${password}${search}${hash}` === '' && !/[\s\\?#@\p{Cc}]/u.test(text)
}

/** A registry of sources by part, as packers write it: each value is a source, or a map with a source. */
export type SourceRegistry = Readonly<Record<string, object>>

const registrySchema = z.record(z.string(), z.record(z.string(), z.unknown()))

/** Reads a registry of sources in JSON. Throws HubError 400 for a file that cannot be read or has another form. */
export function readSourceRegistry(path: string): SourceRegistry {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    throw new HubError(400, `The file of sources ${path} ${unreadable(error, 'correct --sources')}.`)
  }
  const { data } = registrySchema.safeParse(parseJson(text))
  if (data !== undefined) return data
  throw new HubError(
    400,
    `The file of sources ${path} must be a JSON object from each part's id to its source, such as {"pay": {"source": {"marketplace_slug": "payments"}}}.`,
  )
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** A source that a file gives a part, before it is checked. */
interface WrittenSource {
  readonly path: string
  readonly source: object
  /** The place of the source, for messages. */
  readonly label: string
}

/**
 * Returns the sources of the parts that the project does not contain: those in the plan's steps, in the parts' own
 * plugin.yaml, service.yaml or extension.yaml, and in the registry, from which other projects' parts are left out. Throws
 * HubError 400 for a source that hosts refuse or that could change, and for two different sources of one part.
 */
export function readPartSources(plan: Plan, tree: SourceTree, registry: SourceRegistry = {}): PartSources {
  const found = new Map<string, { source: PartSource; label: string }>()
  for (const { path, source: written, label } of [
    ...sourcesInPlan(plan, tree),
    ...sourcesInParts(tree),
    ...sourcesInRegistry(registry, plan, tree),
  ]) {
    const source = parseSource(written, label)
    const other = found.get(path)
    if (other !== undefined && !isDeepStrictEqual(other.source, source))
      throw new HubError(
        400,
        `${label} gives ${path} a different source than ${other.label}: keep only one of the sources.`,
      )
    found.set(path, other ?? { source, label })
  }
  return new Map([...found].map(([path, { source }]) => [path, source]))
}

function sourcesInPlan({ steps }: Plan, { pluginsDirname }: SourceTree): WrittenSource[] {
  return steps.flatMap(({ id, action, plugin, extension, source }) => {
    if (source === undefined) return []
    const path = action === 'install_plugin' ? `${pluginsDirname}/${plugin}` : `extensions/${extension}`
    return [{ path, source, label: `${PLAN_PATH}: the source in step ${id}` }]
  })
}

/** A file that is not YAML, or has something else as its source, says nothing about the part. */
function sourcesInParts({ members, plugins, extensions }: SourceTree): WrittenSource[] {
  const files = [
    ...plugins.map(path => [path, 'plugin.yaml'] as const),
    ...extensions.flatMap(path => [[path, 'service.yaml'] as const, [path, 'extension.yaml'] as const]),
  ]
  return files.flatMap(([path, name]) => {
    const member = members.get(`${path}/${name}`)
    const source = member?.type === 'file' ? sourceIn(member) : undefined
    return source === undefined ? [] : [{ path, source, label: `The source in ${path}/${name}` }]
  })
}

const withSourceSchema = z.object({ source: z.record(z.string(), z.unknown()) })

function sourceIn({ source: file, path, size }: FileMember): object | undefined {
  if (size > MAX_PLUGIN_YAML_BYTES) return undefined
  try {
    const value = parseYamlDocument(readFileSync(file, 'utf8'), path).toJS({ maxAliasCount: 0 })
    return withSourceSchema.safeParse(value).data?.source
  } catch {
    return undefined
  }
}

/** A registry may name a part by its id or by its path. */
function sourcesInRegistry(registry: SourceRegistry, plan: Plan, tree: SourceTree): WrittenSource[] {
  const installed = plan.steps.flatMap(({ action, plugin, extension }) =>
    action === 'install_plugin'
      ? [`${tree.pluginsDirname}/${plugin}`]
      : action === 'install_extension'
        ? [`extensions/${extension}`]
        : [],
  )
  const parts = [...new Set([...installed, ...tree.plugins, ...tree.extensions])]
  return parts.flatMap(path => {
    const key = [path, path.replace(`${tree.pluginsDirname}/`, 'plugins/'), basename(path)].find(name =>
      Object.hasOwn(registry, name),
    )
    const entry = key === undefined ? undefined : registry[key]
    if (entry === undefined) return []
    const source = 'source' in entry && typeof entry.source === 'object' && entry.source !== null ? entry.source : entry
    return [{ path, source, label: `The source of ${key} in the file of sources` }]
  })
}
