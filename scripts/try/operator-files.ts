import { resolve } from 'node:path'
import { readGivenFile } from '../../hub/commands/command.ts'
import { HubError, UsageError } from '../../hub/errors.ts'
import { PLAN_PATH } from '../../hub/project/source-tree.ts'
import { buildDefaultPlan } from '../../src/core/plan/default-plan.ts'
import { pluginToBreak } from './broken-project.ts'
import type { Part } from './part.ts'
import type { Sources } from './sources.ts'

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
