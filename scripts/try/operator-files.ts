import { resolve } from 'node:path'
import { readGivenFile } from '../../hub/commands/command.ts'
import { UsageError } from '../../hub/errors.ts'
import { buildDefaultPlan } from '../../src/core/plan/default-plan.ts'
import type { Part } from './part.ts'

/** A file in the repository of the workflow. The action needs none. */
export interface OperatorFile {
  /** The input that names it. */
  readonly input: string
  readonly path: string
  readonly text: string
  /** Your file that it is a copy of; messages name `path`. */
  readonly copyOf?: string
}

/** The options of the command line that decide the content of the operator's files. */
export interface FileOptions {
  readonly plan?: string | undefined
  readonly 'host-config'?: string | undefined
  readonly break: boolean
}

/** Throws UsageError for options that exclude each other, and HubError for a file that cannot be read. */
export function readOperatorFiles(part: Part, options: FileOptions): OperatorFile[] {
  const { plan, 'host-config': hostConfig } = options
  if (options.break && (plan ?? hostConfig) !== undefined)
    throw new UsageError('The option --break has a plan and a host config of its own: remove --plan and --host-config.')
  if (options.break) return failingFiles(part)
  return [
    ...(plan === undefined ? [] : [readCopy('plan', plan, planOf)]),
    ...(hostConfig === undefined ? [] : [readCopy('host-config', hostConfig, hostConfigOf)]),
  ]
}

/** The plan that the action uses by default, as a file. */
export function defaultPlanFile(part: Part): OperatorFile {
  return planOf(buildDefaultPlan(part, undefined).text)
}

/** npm starts its programs in the folder of package.json, wherever you typed the command. */
export function pathFromCaller(path: string): string {
  return resolve(process.env['INIT_CWD'] ?? '.', path)
}

function readCopy(option: string, given: string, fileOf: (text: string) => OperatorFile): OperatorFile {
  const path = pathFromCaller(given)
  return { ...fileOf(readGivenFile(option, path).toString()), copyOf: path }
}

/** Creates a plan that fails as soon as the part is in place, by a command of the host config. */
function failingFiles(part: Part): OperatorFile[] {
  const step = `- {id: broken, action: provision, plugin: "${part.slug}", depends_on: [files]}\n`
  return [
    planOf(`${defaultPlanFile(part).text}${step}`),
    hostConfigOf(`version: 1\nprovision:\n  "${part.slug}": {command: ["false"]}\n`),
  ]
}

function planOf(text: string): OperatorFile {
  return { input: 'install-plan', path: 'deploy/install.yaml', text }
}

function hostConfigOf(text: string): OperatorFile {
  return { input: 'host-config', path: 'deploy/host-config.yaml', text }
}
