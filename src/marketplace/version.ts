import type { PluginYaml } from '../core/content/plugin-yaml.ts'
import { ArtifactError } from '../core/errors.ts'
import { cleanForeignText } from '../core/foreign-text.ts'
import { versionSchema } from '../core/identifiers.ts'
import { isSameVersion } from '../core/trust/versions.ts'

export interface DeployedVersion {
  version: string
  /** The source of the version. The signature covers only `plugin.yaml`, not the other two. */
  source: 'plugin.yaml' | 'header' | 'requested'
}

/** The claims about the version that was served, before plugin.yaml is read. */
export interface VersionClaims {
  /** The requested version; undefined if the hub chose. */
  readonly asked: string | undefined
  /** The version that the hub lists as its latest, if this run asked for it. The hub may serve another version. */
  readonly listed: string | undefined
  /** The version in the hub's header, which is not signed. */
  readonly served: { readonly headerVersion: string | undefined }
}

/**
 * Decides which version an artifact is. A plugin's own `plugin.yaml` decides. It must match the requested version or,
 * if the hub chose the version, the hub's header. For a service, or if `plugin.yaml` names no version, the hub's header
 * decides, even if it differs from the requested version. Without a header, the request decides; for `latest`, that is
 * the version that the hub lists. Throws ArtifactError `version_mismatch`, or `no_published_version` if there is no
 * claim at all.
 */
export function decideVersion(claims: VersionClaims, pluginYaml: PluginYaml | undefined): DeployedVersion {
  const version = pluginYaml?.version
  const { headerVersion } = claims.served
  if (version !== undefined) {
    const claimed = claimedVersion(claims)
    if (claimed !== undefined && !isSameVersion(version, claimed)) throw mismatch(claims, version)
    if (!versionSchema.safeParse(version).success) throw unusable(version)
    return { version, source: 'plugin.yaml' }
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

/** The claimed version before the artifact is opened: the requested one, else the hub's header. */
export function claimedVersion({ asked, served }: VersionClaims): string | undefined {
  return asked ?? served.headerVersion
}

function unusable(found: string): ArtifactError {
  return new ArtifactError(
    'version_mismatch',
    `The artifact's plugin.yaml says version "${cleanForeignText(found, 60)}", which no hub or host accepts as a version: the artifact was refused. Have the publisher correct plugin.yaml and publish again, or use another version.`,
  )
}

function mismatch({ asked, served }: VersionClaims, found: string): ArtifactError {
  const claim =
    asked === undefined && served.headerVersion !== undefined
      ? `The hub says that it served version ${served.headerVersion}`
      : `The requested version is ${asked ?? 'latest'}`
  const isSameNumber = Number(asked ?? served.headerVersion) === Number(found)
  const hint = isSameNumber ? ' (without quotes, it is a number, and loses its final zeros)' : ''
  return new ArtifactError(
    'version_mismatch',
    `${claim}, but the artifact's plugin.yaml says "${cleanForeignText(found, 60)}"${hint}: the artifact was refused. Have the publisher correct plugin.yaml and publish again, or use another version.`,
  )
}
