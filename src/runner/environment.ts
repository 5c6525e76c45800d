import { tmpdir } from 'node:os'
import { cleanForeignText } from '../core/foreign-text.ts'
import type { RunnerFacts } from '../install/transaction/context.ts'
import type { WorkflowRun } from '../install/transaction/facts.ts'

/** The folder to which paths in inputs are relative. */
export function readWorkspace(): string {
  return process.env['GITHUB_WORKSPACE'] ?? process.cwd()
}

/** What the runner's environment says of this process. */
export function readRunnerFacts(env: NodeJS.ProcessEnv): RunnerFacts {
  return {
    workflow: readWorkflowRun(env),
    temporaryFolder: env['RUNNER_TEMP'] || tmpdir(),
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
