import { tmpdir } from 'node:os'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { RunnerFacts } from '../install/transaction/context.ts'
import type { WorkflowRun } from '../install/transaction/facts.ts'

/** Variables of the runner and the process, not of the step: an artifact's template must not get them. */
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

/** The folder to which paths in inputs are relative. */
export function readWorkspace(): string {
  return process.env['GITHUB_WORKSPACE'] ?? process.cwd()
}

/** What the runner's environment says of this process. */
export function readRunnerFacts(env: NodeJS.ProcessEnv): RunnerFacts {
  return {
    workflow: readWorkflowRun(env),
    temporaryFolder: env['RUNNER_TEMP'] || tmpdir(),
    variables: readStepVariables(env),
  }
}

/** Which workflow run this is, from the runner's `GITHUB_*` variables; nulls outside one. */
export function readWorkflowRun(env: NodeJS.ProcessEnv): WorkflowRun {
  const read = (name: string): string | null => (env[name] ? cleanForeignText(env[name], 300) : null)
  const [server, repository, runId] = [read('GITHUB_SERVER_URL'), read('GITHUB_REPOSITORY'), read('GITHUB_RUN_ID')]
  return {
    workflow: read('GITHUB_WORKFLOW'),
    run_id: runId,
    run_attempt: read('GITHUB_RUN_ATTEMPT'),
    job: read('GITHUB_JOB'),
    actor: read('GITHUB_ACTOR'),
    url: server && repository && runId ? `${server}/${repository}/actions/runs/${runId}` : null,
  }
}

/** The variables of the step's own `env:`, as far as the environment can show. */
export function readStepVariables(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) =>
      value === undefined || PROCESS_NAMES.has(name) || RUNNER_PREFIXES.some(prefix => name.startsWith(prefix))
        ? []
        : [[name, value] as const],
    ),
  )
}
