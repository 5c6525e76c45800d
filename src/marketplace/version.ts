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

/** What says which version was served, before plugin.yaml is read. */
export interface VersionClaims {
  /** The version asked for; undefined when the hub chose. */
  readonly asked: string | undefined
  /** The version that the hub lists as its latest, where it was asked; it may serve another one. */
  readonly listed: string | undefined
  /** The hub's header is not signed. */
  readonly served: { readonly headerVersion: string | undefined }
}

/**
 * Which version an artifact really is. A plugin's own `plugin.yaml` decides, and must match the version asked for, or,
 * where the hub chose, its header. For a service, or where it names none, the hub's header decides, which is informative
 * and may differ, else the request; for `latest`, that is the version that the hub lists.
 * Throws ArtifactError `version_mismatch`, or `no_published_version` when nothing says which version it is.
 */
export function decideVersion(claims: VersionClaims, pluginYaml: PluginYaml | undefined): DeployedVersion {
  const { version, versionAsWritten } = pluginYaml ?? {}
  const { headerVersion } = claims.served
  if (version !== undefined && versionAsWritten !== undefined) {
    const claimed = claimedVersion(claims)
    const found = [versionAsWritten, version].find(name => claimed === undefined || isSameVersion(name, claimed))
    if (found === undefined || !versionSchema.safeParse(found).success) throw mismatch(claims, version)
    return { version: found, source: 'plugin.yaml' }
  }
  if (headerVersion !== undefined) return { version: headerVersion, source: 'header' }
  const requested = claims.asked ?? claims.listed
  if (requested === undefined)
    throw new ArtifactError(
      'no_published_version',
      'The hub served its latest artifact without saying which version it is: name a version.',
    )
  return { version: requested, source: 'requested' }
}

/** Which version an artifact is said to be before it is opened: the one asked for, else the hub's header. */
export function claimedVersion({ asked, served }: VersionClaims): string | undefined {
  return asked ?? served.headerVersion
}

function mismatch({ asked, served }: VersionClaims, found: string): ArtifactError {
  const claim =
    asked === undefined && served.headerVersion !== undefined
      ? `The hub says that it served version ${served.headerVersion}`
      : `You asked for version ${asked ?? 'latest'}`
  return new ArtifactError(
    'version_mismatch',
    `${claim}, the artifact's plugin.yaml says "${cleanForeignText(found, 60)}", so it was refused. Have the publisher correct plugin.yaml and publish again, or name another version.`,
  )
}
