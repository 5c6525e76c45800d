/** What the bench deploys, by which name, and with which of its own credentials: they open nothing but its own hub. */
export const SLUG = 'bench-plugin'
export const API_KEY = 'bench-api-key'
export const SIGNING_SECRET = 'bench-signing-secret'
export const DEPLOYMENT_CREDENTIAL = 'bench-deployment-credential'

/** The first install brings version 1, the update version 2. */
export type Version = 1 | 2

export function versionName(version: Version): string {
  return `${version}.0.0`
}
