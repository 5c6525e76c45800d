import assert from 'node:assert/strict'
import { tmpdir } from 'node:os'
import { describe, it } from 'node:test'
import { readRunnerFacts, readWorkflowRun } from '../../src/runner/files.ts'

describe('readWorkflowRun', () => {
  it('returns nulls outside a workflow', () => {
    assert.deepEqual(Object.values(readWorkflowRun({})), [null, null, null, null, null, null])
  })

  it('names the run and its page, in clean text', () => {
    const run = readWorkflowRun({
      GITHUB_WORKFLOW: 'Deploy\n::error::x',
      GITHUB_RUN_ID: '7',
      GITHUB_RUN_ATTEMPT: '2',
      GITHUB_JOB: 'deploy',
      GITHUB_ACTOR: 'operator',
      GITHUB_SERVER_URL: 'https://code-host.example',
      GITHUB_REPOSITORY: 'example/operations',
    })
    assert.equal(run.url, 'https://code-host.example/example/operations/actions/runs/7')
    assert.equal(run.workflow, 'Deploy ::error::x')
    assert.deepEqual([run.run_id, run.run_attempt, run.job, run.actor], ['7', '2', 'deploy', 'operator'])
  })
})

describe('readRunnerFacts', () => {
  it("puts private files into the runner's temporary folder or, outside a workflow, into the system's", () => {
    assert.equal(readRunnerFacts({ RUNNER_TEMP: '/runner/_temp' }).temporaryFolder, '/runner/_temp')
    for (const env of [{}, { RUNNER_TEMP: '' }]) assert.equal(readRunnerFacts(env).temporaryFolder, tmpdir())
  })

  it('contains the workflow run, and no other variable of the environment', () => {
    const env = { GITHUB_JOB: 'deploy', DB_URL: 'x', RUNNER_TEMP: '/t' }
    assert.deepEqual(readRunnerFacts(env), { workflow: readWorkflowRun(env), temporaryFolder: '/t' })
  })
})
