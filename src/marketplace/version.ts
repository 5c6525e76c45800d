import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import { ArtifactError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { versionSchema } from '../core/identifiers.ts'
import { isSameVersion } from '../core/trust/versions.ts'

export interface DeployedVersion {
  version: string
  /** Where the version comes from: the signature covers only `plugin.yaml`. */
  source: 'plugin.yaml' | 'header' | 'requested'
}

/**
 * Which version an artifact really is. A plugin's own `plugin.yaml` decides and must match the requested version. For a
 * service, or where it names none, the hub's header decides, which is informative and may differ, else the request.
 * `asked` is undefined when the hub chose.
 * Throws ArtifactError `version_mismatch`, or `no_published_version` when nothing says which version it is.
 */
export function decideVersion(
  asked: string | undefined,
  headerVersion: string | undefined,
  pluginYaml: PluginYaml | undefined,
): DeployedVersion {
  const { version, versionAsWritten } = pluginYaml ?? {}
  if (version !== undefined && versionAsWritten !== undefined) {
    const found = [versionAsWritten, version].find(name => asked === undefined || isSameVersion(name, asked))
    if (found === undefined || !versionSchema.safeParse(found).success) throw mismatch(asked, version)
    return { version: found, source: 'plugin.yaml' }
  }
  if (headerVersion !== undefined) return { version: headerVersion, source: 'header' }
  if (asked === undefined)
    throw new ArtifactError(
      'no_published_version',
      'The hub served its latest artifact without saying which version it is: name a version.',
    )
  return { version: asked, source: 'requested' }
}

function mismatch(asked: string | undefined, found: string): ArtifactError {
  return new ArtifactError(
    'version_mismatch',
    `You asked for version ${asked ?? 'latest'}, the artifact's plugin.yaml says "${cleanForeignText(found, 60)}": nothing was installed. Have the publisher correct plugin.yaml and publish again, or name another version.`,
  )
}
