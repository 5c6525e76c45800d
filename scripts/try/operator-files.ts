import { cpSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseDocument } from 'yaml'
import { z } from 'zod'
import { readGivenFile } from '../../hub/commands/command.ts'
import { HubError, UsageError } from '../../hub/errors.ts'
import { PLAN_PATH } from '../../hub/project/source-tree.ts'
import { buildDefaultPlan } from '../../src/core/plan/default-plan.ts'
import type { Part, Project, Sources } from './sources.ts'

/** A file in the repository of the workflow. The action also works without any such file. */
export interface OperatorFile {
  /** The input that names it. */
  readonly input: string
  readonly path: string
  readonly text: string
  /** The operator's file of which this is a copy; messages name `path`. */
  readonly copyOf?: string
}

/** The command-line options that decide the content of the operator's files. */
export interface FileOptions {
  readonly plan?: string | undefined
  readonly 'host-config'?: string | undefined
  readonly break: boolean
}

/**
 * Returns the operator's files for the sources. Throws UsageError for options that exclude each other, do not apply to
 * the sources or name a file that cannot be read.
 */
export function readOperatorFiles(sources: Sources, options: FileOptions): OperatorFile[] {
  const { plan, 'host-config': hostConfig } = options
  if (sources.kind === 'project' && plan !== undefined)
    throw new UsageError(
      `The option --plan does not apply to a project, whose plan is its ${PLAN_PATH}: remove the option.`,
    )
  if (options.break && (plan ?? hostConfig) !== undefined)
    throw new UsageError('The option --break uses its own plan and host config: remove --plan and --host-config.')
  if (options.break) return failingFiles(sources)
  return [
    ...(plan === undefined ? [] : [readCopy('plan', plan, planOf)]),
    ...(hostConfig === undefined ? [] : [readCopy('host-config', hostConfig, hostConfigOf)]),
  ]
}

/** The plan that the action uses by default, as a file. */
export function defaultPlanFile(part: Part): OperatorFile {
  return planOf(buildDefaultPlan(part, undefined).text)
}

/** Resolves a path relative to the folder where npm was called: npm runs scripts in the folder of package.json. */
export function pathFromCaller(path: string): string {
  return resolve(process.env['INIT_CWD'] ?? '.', path)
}

function readCopy(option: string, given: string, fileOf: (text: string) => OperatorFile): OperatorFile {
  const path = pathFromCaller(given)
  return { ...fileOf(readOption(option, path)), copyOf: path }
}

function readOption(option: string, path: string): string {
  try {
    return readGivenFile(option, path).toString()
  } catch (error) {
    throw error instanceof HubError ? new UsageError(error.message) : error
  }
}

/**
 * Returns the files that use a command in the host config to make a step fail after all files are in place. A project
 * gets that step in the plan of its sealed copy.
 */
function failingFiles(sources: Sources): OperatorFile[] {
  if (sources.kind === 'project') return [failingHostConfig(pluginToBreak(sources.folder))]
  const step = `- {id: broken, action: provision, plugin: "${sources.slug}", depends_on: [files]}\n`
  return [planOf(`${defaultPlanFile(sources).text}${step}`), failingHostConfig(sources.slug)]
}

function failingHostConfig(id: string): OperatorFile {
  return hostConfigOf(`version: 1\nprovision:\n  "${id}": {command: ["false"]}\n`)
}

function planOf(text: string): OperatorFile {
  return { input: 'install-plan', path: 'deploy/install.yaml', text }
}

function hostConfigOf(text: string): OperatorFile {
  return { input: 'host-config', path: 'deploy/host-config.yaml', text }
}

/** The id of the step that fails. */
export const BROKEN_STEP = 'broken'

const stepsSchema = z.array(z.object({ id: z.string().optional(), plugin: z.string().optional() }))

/**
 * Returns the plugin for the step that fails: the first plugin in the plan. Throws UsageError if the plan names no
 * plugin, or already has a step with the id of the added step.
 */
export function pluginToBreak(folder: string): string {
  const steps = stepsOf(folder)
  if (steps.some(({ id }) => id === BROKEN_STEP))
    throw new UsageError(
      `The option --break adds a step "${BROKEN_STEP}", but ${PLAN_PATH} has one already: rename that step, or remove the option.`,
    )
  const plugin = steps.find(step => step.plugin !== undefined)?.plugin
  if (plugin !== undefined) return plugin
  throw new UsageError(`The option --break needs a step with a plugin in ${PLAN_PATH}: remove the option.`)
}

/**
 * Copies a project's sources into a new folder. Adds a step to the copy's plan that runs after all others and fails.
 */
export function copyWithBrokenStep({ folder, pluginsDirname }: Project, copy: string): void {
  for (const path of [pluginsDirname, 'extensions', PLAN_PATH].filter(each => existsSync(join(folder, each))))
    cpSync(join(folder, path), join(copy, path), { recursive: true, verbatimSymlinks: true })
  const plan = parseDocument(readFileSync(join(folder, PLAN_PATH), 'utf8'))
  const depends_on = stepsOf(folder).flatMap(({ id }) => id ?? [])
  plan.addIn(
    ['steps'],
    plan.createNode({ id: BROKEN_STEP, action: 'provision', plugin: pluginToBreak(folder), depends_on }),
  )
  writeFileSync(join(copy, PLAN_PATH), plan.toString())
}

function stepsOf(folder: string): z.infer<typeof stepsSchema> {
  const plan = parseDocument(readFileSync(join(folder, PLAN_PATH), 'utf8'))
  return stepsSchema.parse(plan.toJS()?.steps)
}
