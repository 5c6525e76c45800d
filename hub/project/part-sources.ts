import { basename } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { kindSchema, slugSchema, versionSchema } from '../names.ts'
import { type Plan, refusedPlan } from './plan.ts'
import type { Member, SourceTree } from './source-tree.ts'

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
  if (data === undefined) throw refusedPlan([`${label} ${error?.issues[0]?.message}`])
  return data
}

/** Throws HubError 400 for a source that hosts refuse: `sha256` may pin the tree of a branch or tag. */
export function requireFixedSource(written: object, part: string, sha256: string | undefined): void {
  const isNamed = sha256 !== undefined && 'ref' in written && typeof written.ref === 'string' && written.ref !== ''
  parseSource(isNamed ? { ...written, ref: '0'.repeat(40) } : written, `the source of ${part} in manifest.json`)
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

/**
 * Returns the sources of the parts that the project does not contain. Throws HubError 400 for a source that hosts
 * refuse or that could change, for one in a step that installs nothing, and for two different sources of one part.
 */
export function readPartSources(plan: Plan, pluginsDirname: string): PartSources {
  const sources = new Map<string, PartSource>()
  for (const { id, action, plugin, extension, source: written } of plan.steps) {
    if (written === undefined) continue
    const source = parseSource(written, `step ${id}: source`)
    const path = action === 'install_plugin' ? `${pluginsDirname}/${plugin}` : `extensions/${extension}`
    const other = sources.get(path)
    if (other !== undefined && !isDeepStrictEqual(other, source))
      throw refusedPlan([
        `step ${id} gives ${path} a different source than an earlier step: keep only one of the sources`,
      ])
    sources.set(path, source)
  }
  return sources
}
