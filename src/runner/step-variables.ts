/** What belongs to the runner and the process, not to the step: an artifact's template must not be able to ask for it. */
const RUNNER_PREFIXES = ['ACTIONS_', 'GITHUB_', 'INPUT_', 'NODE_', 'RUNNER_', 'STATE_']
const PROCESS_NAMES: ReadonlySet<string> = new Set([
  'CI',
  'HOME',
  'LANG',
  'LOGNAME',
  'PATH',
  'PWD',
  'SHELL',
  'TMPDIR',
  'USER',
])

/** The variables of the step's own `env:`, as far as the environment can tell. */
export function readStepVariables(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) =>
      value === undefined || PROCESS_NAMES.has(name) || RUNNER_PREFIXES.some(prefix => name.startsWith(prefix))
        ? []
        : [[name, value] as const],
    ),
  )
}
