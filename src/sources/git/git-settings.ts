import { allowedEnvironment } from '../../install/files/child-process.ts'

/** A line of git's configuration. */
export type GitSetting = readonly [key: string, value: string]

const HELPER = 'bounded'
/**
 * The memory limit for the process that talks to the server. That process holds the whole list of refs, which can be
 * much larger in memory than on the wire. Real lists have a few MiB.
 */
const HELPER_MEMORY_KIB = 192 * 1024

/** Returns the URL that makes git fetch through the helper that has this memory limit. */
export function boundedUrl({ href }: URL): string {
  return `${HELPER}::${href}`
}

/**
 * Git's behavior, whatever a repository or its server asks for: https only, no redirects, no programs but git's own.
 * Nothing from a repository runs here, and git checks all received objects while it unpacks them.
 */
const SETTINGS: readonly GitSetting[] = [
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.attributesFile', '/dev/null'],
  ['core.askPass', ''],
  ['core.logAllRefUpdates', 'false'],
  ['core.bigFileThreshold', '16m'],
  ['credential.helper', ''],
  ['protocol.allow', 'never'],
  ['protocol.https.allow', 'always'],
  // The remote helper `HELPER` is git's own helper for https, but with less memory than the rest of git.
  [`protocol.${HELPER}.allow`, 'always'],
  [`alias.remote-${HELPER}`, `!ulimit -v ${HELPER_MEMORY_KIB} && exec git remote-https`],
  ['http.proxyAuthMethod', 'basic'],
  ['core.deltaBaseCacheLimit', '32m'],
  ['core.packedGitWindowSize', '32m'],
  ['core.packedGitLimit', '64m'],
  ['transfer.fsckObjects', 'true'],
  ['transfer.unpackLimit', '1'],
  ['transfer.bundleURI', 'false'],
  ['transfer.credentialsInUrl', 'die'],
  ['fetch.recurseSubmodules', 'false'],
  ['fetch.writeCommitGraph', 'false'],
  ['submodule.recurse', 'false'],
  ['pack.threads', '1'],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
  ['http.followRedirects', 'false'],
  ['http.sslVerify', 'true'],
  ['http.lowSpeedLimit', '1000'],
  ['http.lowSpeedTime', '60'],
]

/** Builds an environment with all of git's settings, so that no argument and no file has to contain a setting. */
export function gitEnvironment(
  { home, repository }: { readonly home: string; readonly repository: string },
  settings: readonly GitSetting[] = [],
): Record<string, string> {
  const all = [...SETTINGS, ...settings]
  const numbered = all.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ])
  return allowedEnvironment({
    ...{ HOME: home, XDG_CONFIG_HOME: home, LANG: 'C', LC_ALL: 'C' },
    ...{
      GIT_DIR: repository,
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_SYSTEM: '/dev/null',
      GIT_CONFIG_GLOBAL: '/dev/null',
    },
    ...{ GIT_ATTR_NOSYSTEM: '1', GIT_NO_REPLACE_OBJECTS: '1', GIT_NO_LAZY_FETCH: '1', GIT_OPTIONAL_LOCKS: '0' },
    ...{ GIT_ALLOW_PROTOCOL: `https:${HELPER}`, GIT_TERMINAL_PROMPT: '0', GIT_ASKPASS: '', SSH_ASKPASS: '' },
    GIT_CONFIG_COUNT: String(all.length),
    ...Object.fromEntries(numbered),
  })
}
