import { cleanForeignText } from '../core/foreign-text.ts'
import type { RunFacts } from '../install/transaction/facts.ts'

/** Which workflow run this is, from the runner's `GITHUB_*` variables; nulls outside one. */
export function readRunFacts(env: NodeJS.ProcessEnv): RunFacts {
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
