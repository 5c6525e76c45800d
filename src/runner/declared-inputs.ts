import { nearMiss } from '../core/yaml/problems.ts'

/** The inputs of each action, as its action.yml declares them. */
export const DECLARED_INPUTS = {
  deploy: [
    'hub-url',
    'services-url',
    'deployments-url',
    'slug',
    'kind',
    'version',
    'api-key',
    'signing-secret',
    'install-plan',
    'project-root',
    'plugins-directory',
    'allow-shared-root',
    'host-id',
    'host-config',
    'plugin-secret-key',
    'artifact-sha256',
    'allow-downgrade',
    'allow-takeover',
    'redeploy',
    'dry-run',
    'check-only',
    'keep-snapshots',
    'keep-reports',
    'lock-timeout-seconds',
    'timeout-minutes',
    'keep-paths',
    'settings',
    'max-artifact-bytes',
    'max-extracted-bytes',
    'max-entries',
    'ca-file',
    'allow-http',
  ],
  project: [
    'hub-url',
    'devkey',
    'project-id',
    'project-ids',
    'deployment-credential',
    'signer-public-key',
    'version',
    'project-root',
    'allow-shared-root',
    'host-id',
    'host-config',
    'plugin-secret-key',
    'artifact-sha256',
    'allow-downgrade',
    'allow-takeover',
    'redeploy',
    'keep-snapshots',
    'keep-reports',
    'lock-timeout-seconds',
    'timeout-minutes',
    'keep-paths',
    'settings',
    'sources-hub-url',
    'sources-services-url',
    'sources-api-key',
    'sources-api-keys',
    'sources-signing-secret',
    'sources-git-tokens',
    'max-artifact-bytes',
    'max-extracted-bytes',
    'max-entries',
    'ca-file',
    'allow-http',
  ],
  rollback: [
    'kind',
    'id',
    'project-id',
    'to-version',
    'project-root',
    'allow-shared-root',
    'host-config',
    'install-plan',
    'hub-url',
    'deployments-url',
    'api-key',
    'slug',
    'host-id',
    'dry-run',
    'keep-snapshots',
    'keep-reports',
    'lock-timeout-seconds',
    'keep-paths',
    'ca-file',
    'allow-http',
  ],
  remove: [
    'kind',
    'id',
    'project-root',
    'plugins-directory',
    'allow-shared-root',
    'host-config',
    'host-id',
    'dry-run',
    'keep-snapshots',
    'keep-reports',
    'lock-timeout-seconds',
  ],
  verify: [
    'hub-url',
    'services-url',
    'slug',
    'kind',
    'version',
    'api-key',
    'signing-secret',
    'artifact-path',
    'signature',
    'artifact-sha256',
    'install-plan',
    'host-config',
    'keep-paths',
    'plugins-directory',
    'timeout-minutes',
    'max-artifact-bytes',
    'max-extracted-bytes',
    'max-entries',
    'ca-file',
    'allow-http',
  ],
  status: ['project-root', 'fail-on-drift', 'keep-paths', 'allow-shared-root'],
  fleet: [
    'hub-url',
    'deployments-url',
    'kind',
    'slug',
    'api-key',
    'access-token',
    'expect-version',
    'expect-hosts',
    'stopped-at',
    'wait-seconds',
    'max-age-hours',
    'ca-file',
    'allow-http',
  ],
} as const satisfies Record<string, readonly string[]>
export type ActionName = keyof typeof DECLARED_INPUTS

/** In a short name, one edit makes another word. */
const SHORTEST_MISSPELT = 6

interface StrayInputs {
  /** Inputs that this action probably has under another spelling, as sentences without a period. */
  readonly problems: readonly { readonly input: string; readonly message: string }[]
  /** Inputs that only another action has, as sentences. */
  readonly warnings: readonly string[]
}

/**
 * Finds the nonempty inputs in an environment that an action does not declare: a misspelt one would be ignored, such as
 * `dry_run` for `dry-run`. Ignores inputs that resemble none of the action's own: the runner itself warns of them.
 */
export function findStrayInputs(action: ActionName, env: NodeJS.ProcessEnv = process.env): StrayInputs {
  const declared: readonly string[] = DECLARED_INPUTS[action]
  const names = Object.keys(env)
    .filter(key => key.startsWith('INPUT_') && env[key]?.trim() !== '')
    .map(key => key.slice('INPUT_'.length).toLowerCase())
    .filter(name => !declared.includes(name))
  const problems: { input: string; message: string }[] = []
  const warnings: string[] = []
  for (const name of names) {
    const spelt = name.replace(/[_ ]/g, '-')
    const isOwn = declared.includes(spelt)
    const others = Object.entries(DECLARED_INPUTS).filter(
      ([, inputs]: [string, readonly string[]]) => !isOwn && inputs.includes(spelt),
    )
    const meant = findMeant(spelt, declared)
    if (others.length > 0)
      warnings.push(
        `${name} is an input of ${others.map(([other]) => other).join(', ')}, but not of this action, so it has no effect.`,
      )
    else if (meant !== undefined)
      problems.push({ input: name, message: `${name} is not an input of this action: did you mean ${meant}?` })
  }
  return { problems, warnings }
}

function findMeant(name: string, declared: readonly string[]): string | undefined {
  if (declared.includes(name)) return name
  return nearMiss(
    name,
    declared.filter(input => input.length >= SHORTEST_MISSPELT),
  )
}
