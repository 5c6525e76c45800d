import { lstatSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { requireForm } from '../../hub/commands/command-line.ts'
import { UsageError } from '../../hub/errors.ts'
import { readProjectId } from '../../hub/project/bundled-plan.ts'
import { DEFAULT_PLUGINS_DIRNAME } from '../../hub/project/manifest.ts'
import { pluginsDirnameSchema, projectVersionSchema } from '../../hub/project/names.ts'
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
  /** The folder of its plugins, in the sources and on the host. */
  readonly pluginsDirname: string
  /** No file of a project names its version. */
  readonly versionFile: undefined
  /** True if the host signs at least one of the project's plugins, with the host framework's key. */
  readonly isSigned: boolean
}

/** The command-line options about the project. */
export interface GivenProject {
  readonly slug?: string | undefined
  readonly version?: string | undefined
  readonly 'plugins-dirname'?: string | undefined
}

/**
 * Reads the project's id from its plan. Only options can name its version, or a plugins folder other than the default.
 * Throws UsageError for options that do not apply or are malformed, and if there is no plan. Throws HubError if the
 * plan cannot be used.
 */
export function readProject(folder: string, given: GivenProject): Project {
  const { slug, version = FIRST_VERSION, 'plugins-dirname': pluginsDirname = DEFAULT_PLUGINS_DIRNAME } = given
  if (slug !== undefined)
    throw new UsageError(
      `The option --slug does not apply to a project, whose id is in ${PLAN_PATH}: remove the option.`,
    )
  requireForm('version', version, projectVersionSchema)
  requireForm('plugins-dirname', pluginsDirname, pluginsDirnameSchema)
  const plan = join(folder, PLAN_PATH)
  if (!statSync(plan, { throwIfNoEntry: false })?.isFile())
    throw new UsageError(
      `${folder} has no file ${PLAN_PATH}: add this plan if it is a project; otherwise, name another kind with --kind.`,
    )
  const id = { kind: 'project', slug: readProjectId(plan), folder } as const
  const isSigned = hasSignedPlugin(join(folder, pluginsDirname))
  return { ...id, version, pluginsDirname, versionFile: undefined, isSigned }
}

function hasSignedPlugin(plugins: string): boolean {
  if (!statSync(plugins, { throwIfNoEntry: false })?.isDirectory()) return false
  const folders = readdirSync(plugins, { withFileTypes: true }).filter(entry => entry.isDirectory())
  return folders.some(({ name }) => isSigned(join(plugins, name, 'plugin.yaml')))
}

/** True if the host signs the plugin. False for a file that cannot be used, which sealing or the host refuses. */
function isSigned(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (!found?.isFile() || found.size > PLUGIN_YAML_LIMITS.bytes) return false
  try {
    return needsPluginSig(parsePluginYaml(readFileSync(path, 'utf8')))
  } catch {
    return false
  }
}
