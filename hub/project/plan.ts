import { readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { kindSchema, parseInput, projectIdSchema, slugSchema, versionSchema } from '../names.ts'
import { MAX_PLAN_BYTES, parseYaml, requireYamlSize } from '../yaml.ts'
import { type Member, PLAN_PATH, type SourceTree } from './source-tree.ts'

const MAX_URL_CHARS = 2000

const subdirectory = z
  .string()
  .regex(/^(?=.{1,4096}$)(?:(?!\.{1,2}(?:\/|$))[^/\\\p{Cc}]+(?:\/|$))+$/u, {
    error: 'must be a relative path without "." or ".."',
  })
  .optional()

/** The source of a part that the project does not contain. A step of the plan names it, and the manifest repeats it. */
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
      ref: z.string().regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/, { error: 'must be a full commit id' }),
      subdirectory,
    }),
  ],
  {
    error:
      'must have a valid marketplace_slug, or both an https url without a user, password, query or fragment and a full commit id as ref; a subdirectory must be a relative path without "." or ".."',
  },
)
export type PartSource = z.output<typeof partSourceSchema>

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

/** The actions that a step can have. */
const ACTIONS = [
  'prepare',
  'download',
  'extract',
  'rollback',
  'provision',
  'install_plugin',
  'install_extension',
  'configure_plugin',
  'write_env',
  'start',
  'stop',
  'restart',
  'healthcheck',
  'notify',
] as const

const stepSchema = z.object({
  id: z.string().optional(),
  action: z.enum(ACTIONS, { error: describeAction }),
  plugin: z.string().optional(),
  extension: z.string().optional(),
  from: z.string().optional(),
  source: partSourceSchema.optional(),
})
type Step = z.output<typeof stepSchema>

const planSchema = z.object({ project_id: projectIdSchema, steps: z.array(stepSchema) })

/** The project's id in the plan at this path. Throws HubError 400 for a file that is too large or not a valid plan. */
export function readProjectId(plan: string): string {
  return parsePlan(readFileSync(plan, 'utf8')).project_id
}

/**
 * Refuses a plan that the sealed files cannot fulfill. Throws HubError 400 as `readPartSources` does. Otherwise, throws
 * one HubError 400 that lists every problem: the plan of another project, and each plugin, extension or template that
 * does not exist or is left out.
 */
export function requireWorkablePlan(tree: SourceTree, projectId: string): void {
  const plan = parsePlan(readFileSync(tree.plan, 'utf8'))
  const sourced = [...readPartSources(tree).keys()]
  const problems = plan.steps.flatMap((step, i) =>
    problemsOf(step, tree)
      .filter(problem => !sourced.some(part => problem.startsWith(`${part}/`)))
      .map(problem => `step ${step.id ?? i + 1} needs ${problem}`),
  )
  if (plan.project_id !== projectId) {
    problems.unshift(`project_id must be ${projectId}, not ${JSON.stringify(plan.project_id)}`)
  }
  if (problems.length > 0) throw new HubError(400, `${PLAN_PATH}: ${problems.join('; ')}.`)
}

/**
 * Returns the sources of the parts that the project does not contain. Throws HubError 400 as `readProjectId` does, for
 * a source in a step that installs nothing, and for two different sources of one part.
 */
export function readPartSources({ plan, pluginsDirname }: SourceTree): PartSources {
  const sources = new Map<string, PartSource>()
  for (const [i, step] of parsePlan(readFileSync(plan, 'utf8')).steps.entries()) {
    const { source } = step
    if (source === undefined) continue
    const name = `${PLAN_PATH}: step ${step.id ?? i + 1}`
    const path = installedPath(step, pluginsDirname)
    if (path === undefined) throw new HubError(400, `${name} has a source, but ${describeNoPart(step)}.`)
    const other = sources.get(path)
    if (other !== undefined && !isDeepStrictEqual(other, source))
      throw new HubError(
        400,
        `${name} gives ${path} a different source than an earlier step: keep only one of the sources.`,
      )
    sources.set(path, source)
  }
  return sources
}

function installedPath({ action, plugin, extension }: Step, pluginsDirname: string): string | undefined {
  if (action === 'install_plugin' && plugin !== undefined) return `${pluginsDirname}/${plugin}`
  return action === 'install_extension' && extension !== undefined ? `extensions/${extension}` : undefined
}

function describeNoPart({ action }: Step): string {
  if (action === 'install_plugin') return 'no plugin: name the plugin that it installs'
  if (action === 'install_extension') return 'no extension: name the extension that it installs'
  return 'installs nothing: remove the source'
}

function describeAction({ input }: { input?: unknown }): string {
  return input === undefined ? 'is missing' : `must be one of ${ACTIONS.join(', ')}, not ${JSON.stringify(input)}`
}

function parsePlan(text: string) {
  requireYamlSize(PLAN_PATH, Buffer.byteLength(text), MAX_PLAN_BYTES)
  const value = parseYaml(text, PLAN_PATH)
  try {
    return parseInput(planSchema, value)
  } catch (error) {
    throw new HubError(400, `${PLAN_PATH}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

function problemsOf({ action, plugin, extension, from }: Step, tree: SourceTree): string[] {
  const { pluginsDirname } = tree
  const needed: string[] = []
  if (plugin !== undefined)
    needed.push(action === 'install_plugin' ? `${pluginsDirname}/${plugin}` : partFolder(plugin, tree))
  if (extension !== undefined) needed.push(`extensions/${extension}`)
  if (action === 'write_env' && from !== undefined) needed.push(from.replace(/^plugins\//, `${pluginsDirname}/`))
  return needed.filter(path => !tree.members.has(path)).map(path => `${path}, which ${absence(path, tree)}`)
}

/** In every action but `install_plugin`, the field `plugin` may also name an extension. */
function partFolder(id: string, { members, pluginsDirname }: SourceTree): string {
  const [plugin, extension] = [`${pluginsDirname}/${id}`, `extensions/${id}`]
  return members.has(extension) && !members.has(plugin) ? extension : plugin
}

function absence(path: string, { leftOut }: SourceTree): string {
  const isLeftOut = leftOut.some(left => path === left || path.startsWith(`${left}/`))
  return isLeftOut ? 'sealing leaves out' : 'does not exist'
}
