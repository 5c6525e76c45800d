/** The plugin that the bench deploys, and credentials that are valid only on its own hub. */
export const SLUG = 'bench-plugin'
export const API_KEY = 'bench-api-key'
export const SIGNING_SECRET = 'bench-signing-secret'
export const DEPLOYMENT_CREDENTIAL = 'bench-deployment-credential'

/** The first install deploys version 1, the update version 2. */
export type Version = 1 | 2

export function versionName(version: Version): string {
  return `${version}.0.0`
}
