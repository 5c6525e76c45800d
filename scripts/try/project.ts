import { lstatSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { UsageError } from '../../hub/errors.ts'
import { readProjectId } from '../../hub/project/bundled-plan.ts'
import { DEFAULT_PLUGINS_DIRNAME } from '../../hub/project/manifest.ts'
import { projectVersionSchema } from '../../hub/project/names.ts'
import { PLAN_PATH } from '../../hub/project/source-tree.ts'
import { parsePluginYaml } from '../../src/core/content/plugin-yaml.ts'
import { PLUGIN_YAML_LIMITS } from '../../src/core/limits.ts'
import { needsPluginSig } from '../../src/install/host/plugin-sig.ts'
import { FIRST_VERSION } from './part.ts'

/** The sources of a project in a folder. */
export interface Project {
  readonly kind: 'project'
  /** The id in its plan. */
  readonly slug: string
  readonly folder: string
  readonly version: string
  /** No file of a project names its version. */
  readonly versionFile: undefined
  /** True if the host signs one of its plugins, which needs the host framework's key. */
  readonly isSigned: boolean
}

/** The options of the command line about the project. */
export interface GivenProject {
  readonly slug?: string | undefined
  readonly version?: string | undefined
}

/**
 * Reads the project's id in its plan. No file names its version. Throws UsageError for options that do not apply, or if
 * there is no plan, and HubError if the plan cannot be used.
 */
export function readProject(folder: string, { slug, version = FIRST_VERSION }: GivenProject): Project {
  if (slug !== undefined)
    throw new UsageError(`The option --slug does not apply to a project, whose id is in ${PLAN_PATH}: remove it.`)
  const { error } = projectVersionSchema.safeParse(version)
  if (error !== undefined) throw new UsageError(`The option --version ${error.issues[0]?.message}, not ${version}.`)
  const plan = join(folder, PLAN_PATH)
  if (!statSync(plan, { throwIfNoEntry: false })?.isFile())
    throw new UsageError(`${folder} has no file ${PLAN_PATH}: add this plan if it is a project, or remove --kind.`)
  const id = { kind: 'project', slug: readProjectId(plan), folder } as const
  return { ...id, version, versionFile: undefined, isSigned: hasSignedPlugin(folder) }
}

function hasSignedPlugin(folder: string): boolean {
  const plugins = join(folder, DEFAULT_PLUGINS_DIRNAME)
  if (!statSync(plugins, { throwIfNoEntry: false })?.isDirectory()) return false
  const folders = readdirSync(plugins, { withFileTypes: true }).filter(entry => entry.isDirectory())
  return folders.some(({ name }) => isSigned(join(plugins, name, 'plugin.yaml')))
}

/** False for a file that cannot be used, which sealing refuses. */
function isSigned(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (!found?.isFile() || found.size > PLUGIN_YAML_LIMITS.bytes) return false
  try {
    return needsPluginSig(parsePluginYaml(readFileSync(path, 'utf8')))
  } catch {
    return false
  }
}
