import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type PluginYaml, parsePluginYaml } from '../../core/content/plugin-yaml.ts'
import { ArtifactError, errnoOf } from '../../core/errors.ts'
import { PLUGIN_YAML_LIMITS } from '../../core/limits.ts'
import { toHostError } from '../files/system-errors.ts'

/**
 * Reads `plugin.yaml` at the root of a plugin's tree. Throws ArtifactError `not_a_plugin` if there is no such file or
 * if it is not a regular file, and `invalid_manifest` if it is too large. Otherwise, throws as `parsePluginYaml` does.
 * Throws the system's error as DeploymentError.
 */
export function readPluginYaml(staged: string): PluginYaml {
  const path = join(staged, 'plugin.yaml')
  try {
    const found = statSync(path)
    if (!found.isFile()) throw notAPlugin('a plugin.yaml that is not a file')
    if (found.size > PLUGIN_YAML_LIMITS.bytes) throw tooLarge(found.size)
    return parsePluginYaml(readFileSync(path, 'utf8'))
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') throw notAPlugin('no plugin.yaml file at its root')
    throw toHostError(error, `reading ${path}`)
  }
}

function tooLarge(bytes: number): ArtifactError {
  return new ArtifactError(
    'invalid_manifest',
    `The artifact's plugin.yaml must be at most ${PLUGIN_YAML_LIMITS.bytes} bytes, but found ${bytes}, so the artifact was refused. The publisher must shorten plugin.yaml.`,
  )
}

function notAPlugin(found: string): ArtifactError {
  return new ArtifactError(
    'not_a_plugin',
    `The artifact has ${found}, so it is not a plugin and was refused. If it is a service, set kind: service (in a project's source, marketplace_kind: service); otherwise, the publisher must correct plugin.yaml.`,
  )
}
