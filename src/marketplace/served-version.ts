import { ArtifactError, DeploymentError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { versionSchema } from '../core/identifiers.ts'
import type { PluginYaml } from '../core/plugin-yaml.ts'
import { isOlderVersion, isSameVersion } from '../core/versions.ts'
import type { InstalledRow } from '../install/installed.ts'

export interface DeployedVersion {
  version: string
  /** Who says so: only `plugin.yaml` is covered by the signature. */
  source: 'plugin.yaml' | 'header' | 'requested'
}

/**
 * Which version an artifact really is. A plugin's own `plugin.yaml` decides and must agree with what was asked for; for a
 * service, or where it names none, the hub's header, which is informative and may differ, else what was asked for.
 * `asked` is undefined when the hub chose.
 * Throws ArtifactError `version_mismatch`, or `no_published_version` when nobody says which version it is.
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

/** Refuses to let `latest` go back: DeploymentError `downgrade_refused` when it is older than what is installed. */
export function refuseDowngrade(latest: string, installed: string | null): void {
  if (installed === null || isOlderVersion(latest, installed) !== true) return
  throw new DeploymentError(
    'downgrade_refused',
    `The hub's latest version is ${latest}, this host runs ${installed}, which is newer: nothing was installed. ` +
      'Set allow-downgrade: true, or name the version, to go back on purpose.',
  )
}

/**
 * Refuses a version that this host knows with other bytes, unless the operator has pinned these: ArtifactError
 * `version_reused`. A published version is expected never to change.
 */
export function refuseReusedVersion(
  version: string,
  sha256: string,
  installed: InstalledRow | undefined,
  pinnedSha256: string | undefined,
): void {
  if (pinnedSha256 === sha256 || installed === undefined) return
  const known = [installed, ...installed.snapshots].find(
    row => row.version !== null && isSameVersion(row.version, version) && row.artifact_sha256 !== null,
  )
  if (known === undefined || known.artifact_sha256 === sha256) return
  throw new ArtifactError(
    'version_reused',
    `The hub serves version ${version} with other bytes (sha256 ${sha256}) than this host got before (${known.artifact_sha256}): ` +
      'nothing was installed. Ask the publisher why; to take these bytes, set artifact-sha256 to their digest.',
  )
}

function mismatch(asked: string | undefined, found: string): ArtifactError {
  return new ArtifactError(
    'version_mismatch',
    `Version ${asked ?? 'latest'} was asked for, the artifact's plugin.yaml says "${cleanForeignText(found, 60)}": nothing was installed. The hub or the publisher has mixed up versions.`,
  )
}
