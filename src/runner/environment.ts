import { tmpdir } from 'node:os'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { RunnerFacts } from '../install/transaction/context.ts'
import type { WorkflowRun } from '../install/transaction/facts.ts'

/** Returns the folder that paths in inputs are relative to. */
export function readWorkspace(): string {
  return process.env['GITHUB_WORKSPACE'] ?? process.cwd()
}

/** Returns the facts about this process from the runner's environment. */
export function readRunnerFacts(env: NodeJS.ProcessEnv): RunnerFacts {
  return {
    workflow: readWorkflowRun(env),
    temporaryFolder: env['RUNNER_TEMP'] || tmpdir(),
  }
}

/** Returns the facts about this process's workflow run. A fact is null if a `GITHUB_*` variable for it is not set. */
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
