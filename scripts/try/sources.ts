import { accessSync, constants, existsSync, readdirSync, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { UsageError } from '../../hub/errors.ts'
import { type Kind, slugOf } from '../../hub/names.ts'
import { PLAN_PATH } from '../../hub/project/source-tree.ts'
import { notAPlugin, type Part, readPart } from './part.ts'
import { type Project, readProject } from './project.ts'

const KINDS = ['plugin', 'service', 'project'] as const
const NEAR_MISSES = ['plugin.yml', 'plugin.json', 'Plugin.yaml', 'plugin.yaml.txt']

/** A folder with the sources of one deployment. */
export type Sources = Part | Project

/** The command-line options about the sources. The folder provides the other facts. */
export type GivenSources = {
  readonly [Name in 'kind' | 'slug' | 'version' | 'plugins-dirname']?: string | undefined
}

/**
 * Reads the sources in a folder. If no kind is given, a folder with a `plugin.yaml` is a plugin, one with the plan of a
 * project is a project, and one with a program at its root is a service. Throws UsageError if there is no folder, and
 * for an option that does not apply. Throws ArtifactError, which says what to add or rename, if the folder is none of
 * these, or has a `plugin.yaml` under a wrong name. Also throws as readPart and readProject do.
 */
export function readSources(folder: string, given: GivenSources): Sources {
  const found = statSync(folder, { throwIfNoEntry: false })
  if (!found?.isDirectory())
    throw new UsageError(
      `${found === undefined ? `There is no folder ${folder}` : `${folder} is not a folder`}: name the folder of your plugin, service or project.`,
    )
  const kind = given.kind === undefined ? detectKind(folder) : parseKind(given.kind)
  if (kind === 'project') return readProject(folder, given)
  if (given['plugins-dirname'] !== undefined)
    throw new UsageError(`The option --plugins-dirname applies to a project, but this is a ${kind}: remove the option.`)
  return readPart(folder, { ...given, kind })
}

/** The way to raise the version of the sources, in words. */
export function howToRaise({ version, versionFile }: Pick<Sources, 'version' | 'versionFile'>): string {
  if (versionFile !== undefined) return `in ${versionFile}`
  const next = version.replace(/\d+$/, digits => String(Number(digits) + 1))
  return `--version ${next === version ? 'NEXT' : next}`
}

function parseKind(text: string): Sources['kind'] {
  const kind = KINDS.find(each => each === text)
  if (kind !== undefined) return kind
  throw new UsageError(`The option --kind must be plugin, service or project, not ${JSON.stringify(text)}.`)
}

function detectKind(folder: string): Kind | 'project' {
  const names = readdirSync(folder)
  if (names.includes('plugin.yaml')) return 'plugin'
  if (existsSync(join(folder, PLAN_PATH))) return 'project'
  const nearMiss = NEAR_MISSES.find(name => names.includes(name))
  if (nearMiss !== undefined) throw notAPlugin(`${join(folder, nearMiss)} must be named plugin.yaml: rename it.`)
  if (names.some(name => isProgram(join(folder, name)))) return 'service'
  const name = slugOf(basename(resolve(folder))) ?? 'my-plugin'
  throw notAPlugin(
    `${folder} has no plugin.yaml: add one with the lines "name: ${name}" and 'version: "1.0.0"' if it is a plugin, add --kind service if it is a service, or ${PLAN_PATH} if it is a project.`,
  )
}

function isProgram(path: string): boolean {
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) return false
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
