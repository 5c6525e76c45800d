import { readFileSync } from 'node:fs'
import { z } from 'zod'
import { HubError } from '../errors.ts'
import { parseInput, partIdSchema, projectIdSchema, versionSchema } from '../names.ts'
import { MAX_PLAN_BYTES, parsePlainYaml, readText, requireYamlSize } from '../yaml.ts'
import { PLAN_PATH } from './source-tree.ts'

const MAX_PROBLEMS = 10

/** The fields of each action, apart from those of every step; a "?" marks a field that may be absent. */
const FIELDS = {
  prepare: [],
  download: [],
  extract: [],
  rollback: ['to?'],
  provision: ['plugin'],
  install_plugin: ['plugin', 'source?'],
  install_extension: ['extension', 'source?'],
  configure_plugin: ['plugin'],
  write_env: ['plugin', 'from'],
  start: ['plugin?'],
  stop: ['plugin?'],
  restart: ['plugin?'],
  healthcheck: ['plugin?', 'timeout?', 'retries?'],
  notify: ['event', 'message?'],
} as const satisfies Record<string, readonly string[]>

const ACTIONS = Object.keys(FIELDS) as (keyof typeof FIELDS)[]
const COMMON_FIELDS = ['id', 'action', 'depends_on?', 'snapshot?']
const NEEDS_FILES: readonly string[] = ['write_env', 'start', 'restart', 'healthcheck']

const stepIdSchema = z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, {
  error: 'must be 1 to 64 characters (a-z, 0-9, "_" and "-"), starting with a letter or digit',
})
const TRUTHS: readonly unknown[] = ['true', 'yes', 'on', 'false', 'no', 'off'].flatMap(word => [
  word,
  word.toUpperCase(),
  `${word.charAt(0).toUpperCase()}${word.slice(1)}`,
])

/** What hosts accept in each field of a step. */
const stepSchema = z.object({
  id: stepIdSchema,
  action: z.enum(ACTIONS, { error: describeAction }),
  depends_on: z.array(stepIdSchema, { error: 'must be a list of ids of steps' }).default([]),
  snapshot: z
    .unknown()
    .refine(value => typeof value === 'boolean' || TRUTHS.includes(value), { error: 'must be true or false' })
    .optional(),
  plugin: partIdSchema.optional(),
  extension: partIdSchema.optional(),
  from: z
    .string()
    .transform(withoutDots)
    .refine(isTemplatePath, { error: 'must be a path plugins/<id>/... or extensions/<id>/...' })
    .optional(),
  source: z.record(z.string(), z.unknown()).optional(),
  timeout: z.unknown().refine(isTimeout, { error: 'must be 1 to 600 seconds, such as 30, 30s or 2m' }).optional(),
  retries: z.unknown().refine(isRetries, { error: 'must be a whole number from 0 to 20' }).optional(),
  event: stepIdSchema.optional(),
  message: z
    .string()
    .regex(/^[^\p{Cc}\p{Zl}\p{Zp}]{0,500}$/u, { error: 'must be one line of at most 500 characters' })
    .optional(),
  to: versionSchema.optional(),
})
export type Step = z.output<typeof stepSchema>

const ALL_FIELDS: ReadonlySet<string> = new Set(Object.keys(stepSchema.shape))

const planSchema = z.strictObject({
  format_version: z.literal(['1', 1], { error: 'must be "1"' }),
  project_id: projectIdSchema,
  version: versionSchema,
  steps: z.array(z.unknown()).min(1, { error: 'must contain at least one step' }),
})

/** A plan whose steps hosts accept, as far as the plan alone shows. */
export interface Plan {
  readonly project_id: string
  /** As written. */
  readonly steps: readonly Step[]
}

/**
 * Reads a plan (docs/plan.md). Throws HubError 400, which lists the problems, for a plan that hosts refuse or that YAML
 * parsers read differently. Accepts what other packers write: empty optional fields, the truth values of YAML 1.1,
 * numbers in quotes, and aliases.
 */
export function parsePlan(text: string): Plan {
  requireYamlSize(PLAN_PATH, Buffer.byteLength(text), MAX_PLAN_BYTES)
  const { document, value } = parsePlainYaml(text, PLAN_PATH)
  const { project_id, steps: written } = parseField(planSchema, value)
  for (const field of ['project_id', 'version']) readText(document, [field], PLAN_PATH)
  const read = written.map(readStep)
  const steps = read.flatMap(({ step }) => step ?? [])
  const problems = [
    ...read.flatMap(step => step.problems),
    ...(steps.length === read.length ? graphProblems(steps) : []),
  ]
  if (problems.length > 0) throw refusedPlan(problems)
  return { project_id, steps }
}

/** The project's id in the plan at this path. Throws as `parsePlan` does. */
export function readProjectId(plan: string): string {
  return parsePlan(readFileSync(plan, 'utf8')).project_id
}

function parseField<T>(schema: z.ZodType<T>, value: unknown): T {
  try {
    return parseInput(schema, value)
  } catch (error) {
    throw new HubError(400, `${PLAN_PATH}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

function refusedPlan(problems: readonly string[]): HubError {
  return new HubError(400, `${PLAN_PATH}: ${problems.slice(0, MAX_PROBLEMS).join('; ')}.`)
}

function readStep(written: unknown, index: number): { step?: Step; problems: readonly string[] } {
  if (typeof written !== 'object' || written === null || Array.isArray(written))
    return { problems: [`step ${index + 1} must be a map`] }
  const action = ACTIONS.find(known => known === (written as { action?: unknown }).action)
  const fields = [...COMMON_FIELDS, ...(action === undefined ? ALL_FIELDS : FIELDS[action])]
  const isNeeded = (name: string): boolean => action !== undefined && fields.includes(name)
  const isEmpty = (name: string, value: unknown): boolean =>
    (value === null || value === '') && ALL_FIELDS.has(name) && !isNeeded(name)
  const given = Object.fromEntries(Object.entries(written).filter(([name, value]) => !isEmpty(name, value)))
  const label = `step ${typeof given['id'] === 'string' ? given['id'].slice(0, 64) : index + 1}`
  const unknown = Object.keys(given).filter(name => !fields.includes(name) && !fields.includes(`${name}?`))
  const missing = fields.filter(name => isNeeded(name) && !name.endsWith('?') && given[name] === undefined)
  const { data, error } = stepSchema.safeParse(given)
  const problems = [
    ...unknown.map(name => `${label}: ${JSON.stringify(name.slice(0, 60))} is not a field of ${action ?? 'a step'}`),
    ...missing.map(name => `${label}: ${name} is missing`),
    ...(error?.issues ?? [])
      .filter(({ path }) => !missing.includes(String(path[0])))
      .map(({ path, message }) => `${label}: ${path.join('.')} ${message}`),
  ]
  return data === undefined || problems.length > 0 ? { problems } : { step: data, problems }
}

function describeAction({ input }: { input?: unknown }): string {
  return input === undefined ? 'is missing' : `must be one of ${ACTIONS.join(', ')}, not ${JSON.stringify(input)}`
}

function withoutDots(path: string): string {
  return path
    .split('/')
    .filter((name, index, names) => name !== '.' || index === names.length - 1)
    .join('/')
}

/** True for a path below a part's folder. */
function isTemplatePath(path: string): boolean {
  const [shelf = '', id, ...rest] = path.split('/')
  const isName = (name: string): boolean => name !== '' && name !== '.' && name !== '..'
  const isPart = isName(shelf) && !shelf.startsWith('.') && partIdSchema.safeParse(id).success
  return isPart && rest.length > 0 && rest.every(isName) && !/[\\\p{Cc}]/u.test(path) && path.length <= 4096
}

function isTimeout(value: unknown): boolean {
  const [, count, unit = ''] = /^ *(\d{1,6})([smh]?) *$/.exec(String(value)) ?? []
  const seconds = Number(count) * ({ m: 60, h: 3600 }[unit] ?? 1)
  return (typeof value === 'string' || typeof value === 'number') && seconds >= 1 && seconds <= 600
}

function isRetries(value: unknown): boolean {
  return typeof value === 'number'
    ? Number.isInteger(value) && value >= 0 && value <= 20
    : typeof value === 'string' && /^ *(?:1?\d|20) *$/.test(value)
}

/** Repeated ids, unknown dependencies, and steps that wait for each other. */
function graphProblems(steps: readonly Step[]): string[] {
  const ids = new Set(steps.map(({ id }) => id))
  const repeated = steps.filter(({ id }, index) => steps.findIndex(step => step.id === id) < index)
  const unknown = steps.flatMap(({ id, depends_on }) =>
    depends_on
      .filter(other => !ids.has(other))
      .map(other => `step ${id} depends on ${other}, which is not in this plan`),
  )
  const waiting = stepsThatWait(steps)
  return [
    ...repeated.map(({ id }) => `two steps have the id ${id}`),
    ...unknown,
    ...(waiting.length === 0 ? [] : [`these steps wait for each other: ${waiting.join(', ')}`]),
  ]
}

/** Removes, again and again, each step that depends on no other. */
function stepsThatWait(steps: readonly Step[]): string[] {
  let waiting = new Map(steps.map(step => [step.id, step]))
  for (let before = 0; before !== waiting.size; ) {
    before = waiting.size
    const left = waiting
    waiting = new Map([...left].filter(([, { depends_on }]) => depends_on.some(id => left.has(id))))
  }
  return [...waiting.keys()]
}

/** The steps in the order in which a host runs them: depth first, each after those that it depends on. */
function inOrder(steps: readonly Step[]): Step[] {
  const byId = new Map(steps.map(step => [step.id, step]))
  const ordered = new Set<Step>()
  const add = (step: Step): void => {
    if (ordered.has(step)) return
    for (const id of step.depends_on) add(byId.get(id) as Step)
    ordered.add(step)
  }
  for (const step of steps) add(step)
  return [...ordered]
}

/** What a sealed file contains, as far as its plan depends on it; all paths are relative to its root. */
export interface PlannedFiles {
  readonly pluginsDirname: string
  /** The folders of the plugins and of the extensions in the manifest. */
  readonly plugins: readonly string[]
  readonly extensions: readonly string[]
  /** The folders of parts that come from elsewhere. */
  readonly sourced: ReadonlySet<string>
  isFile(path: string): boolean
  /** Why a path is not there. */
  absence(path: string): string
}

/**
 * Refuses a plan that no host can fulfill with these files. Throws one HubError 400 that lists the problems: the plan
 * of another project, parts and templates that do not exist, a part that is installed twice, and a step that would run
 * before the files that it needs.
 */
export function requireWorkablePlan(plan: Plan, projectId: string, files: PlannedFiles): void {
  const steps = inOrder(plan.steps)
  const installs = steps.filter(isInstall)
  const problems = [
    ...(plan.project_id === projectId
      ? []
      : [`project_id must be ${projectId}, not ${JSON.stringify(plan.project_id)}`]),
    ...(installs.length === 0
      ? ['no step installs anything: add one with action install_plugin or install_extension']
      : []),
    ...repeatedInstalls(installs),
    ...steps.flatMap(step => partProblems(step, installs, files).map(problem => `step ${step.id} needs ${problem}`)),
    ...prematureSteps(steps, files),
  ]
  if (problems.length > 0) throw refusedPlan(problems)
}

function isInstall({ action }: Step): boolean {
  return action === 'install_plugin' || action === 'install_extension'
}

function installedId({ plugin, extension }: Step): string {
  return plugin ?? extension ?? ''
}

function repeatedInstalls(installs: readonly Step[]): string[] {
  return installs.flatMap((step, index) => {
    const id = installedId(step)
    const isRepeated = installs.slice(0, index).some(other => installedId(other) === id)
    return [
      ...(isRepeated ? [`step ${step.id} installs ${id}, which another step already installs`] : []),
      ...(id.endsWith('.env') ? [`step ${step.id} installs ${id}, which could be the name of a settings file`] : []),
    ]
  })
}

/** What a step needs and these files or the other steps lack. */
function partProblems(step: Step, installs: readonly Step[], files: PlannedFiles): string[] {
  const { action, plugin } = step
  const folder = folderOf(step, files)
  if (isInstall(step)) {
    const known = action === 'install_plugin' ? files.plugins : files.extensions
    if (!known.includes(folder)) return [`${folder}, which ${files.absence(folder)}`]
    return step.source === undefined || files.sourced.has(folder)
      ? []
      : [`the source of ${folder}, which the manifest does not repeat`]
  }
  if (plugin === undefined) return []
  if (![...files.plugins, ...files.extensions].includes(folder)) return [`${folder}, which ${files.absence(folder)}`]
  if (NEEDS_FILES.includes(action) && !installs.some(install => installedId(install) === plugin))
    return [`${folder}, which no step installs`]
  return action === 'write_env' ? templateProblems(step, installs, files) : []
}

function templateProblems({ from = '', plugin }: Step, installs: readonly Step[], files: PlannedFiles): string[] {
  const path = inArchive(from, files)
  const installed = installs.map(install => folderOf(install, files))
  const part = installed.find(folder => path.startsWith(`${folder}/`))
  if (part === undefined) return [`${from}, which is not in a part that this plan installs`]
  if (!installed.includes(part.replace(/[^/]+$/, plugin ?? '')))
    return [`a template on the shelf of ${plugin}, not ${from}`]
  return files.sourced.has(part) || files.isFile(path) ? [] : [`${path}, which ${files.absence(path)}`]
}

/** The steps that need the files of a part which only a later step installs. */
function prematureSteps(steps: readonly Step[], files: PlannedFiles): string[] {
  return steps.flatMap((step, index) => {
    const later = steps.slice(index + 1).filter(other => isInstall(other) && needsFilesOf(step, other, files))
    return later.map(
      ({ id }) => `step ${step.id} would run before the files are installed: add ${id} to its depends_on`,
    )
  })
}

function needsFilesOf({ action, plugin, from = '' }: Step, install: Step, files: PlannedFiles): boolean {
  if (!NEEDS_FILES.includes(action)) return false
  const isTemplate = inArchive(from, files).startsWith(`${folderOf(install, files)}/`)
  return plugin === undefined || plugin === installedId(install) || isTemplate
}

/** A plan may say `plugins/`, whatever the archive's folder of plugins is called. */
function inArchive(from: string, { pluginsDirname }: PlannedFiles): string {
  return from.replace(/^plugins\//, `${pluginsDirname}/`)
}

/** The folder that a step's id names. In every action but `install_plugin`, `plugin` may also name an extension. */
function folderOf({ action, plugin, extension }: Step, { pluginsDirname, plugins, extensions }: PlannedFiles): string {
  if (extension !== undefined) return `extensions/${extension}`
  const [asPlugin, asExtension] = [`${pluginsDirname}/${plugin}`, `extensions/${plugin}`]
  const isExtension = extensions.includes(asExtension) && !plugins.includes(asPlugin)
  return action !== 'install_plugin' && isExtension ? asExtension : asPlugin
}
