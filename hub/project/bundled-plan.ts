import { readFileSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { parseInput } from '../names.ts'
import { MAX_PLAN_BYTES, parseYaml, requireYamlSize } from '../yaml-document.ts'
import { projectIdSchema } from './names.ts'
import { PLAN_PATH, type SourceTree } from './source-tree.ts'
import { type PartSource, type PartSources, partSourceSchema } from './stubs.ts'

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
