import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { type PluginYaml, parsePluginYaml } from '../../core/content/plugin-yaml.ts'
import { ArtifactError, errnoOf } from '../../core/errors.ts'
import { MAX_SMALL_FILE_BYTES } from '../../core/limits.ts'
import { toHostError } from '../files/system-errors.ts'

/**
 * Reads the `plugin.yaml` of an extracted artifact, a regular file of at most `MAX_SMALL_FILE_BYTES`. Throws
 * ArtifactError `not_a_plugin`, or the system's error as DeploymentError.
 */
export function readPluginYaml(staged: string): PluginYaml {
  const path = join(staged, 'plugin.yaml')
  try {
    const found = statSync(path)
    if (!found.isFile()) throw notAPlugin('a plugin.yaml that is not a file')
    if (found.size > MAX_SMALL_FILE_BYTES) throw notAPlugin(`a plugin.yaml of more than ${MAX_SMALL_FILE_BYTES} bytes`)
    return parsePluginYaml(readFileSync(path, 'utf8'))
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') throw notAPlugin('no plugin.yaml at its root')
    throw toHostError(error, `reading ${path}`)
  }
}

function notAPlugin(found: string): ArtifactError {
  return new ArtifactError(
    'not_a_plugin',
    `The artifact has ${found}, so it is not a plugin. Nothing was installed. For a service, set kind: service.`,
  )
}
