import assert from 'node:assert/strict'
import { tmpdir } from 'node:os'
import { describe, it } from 'node:test'
import { readRunnerFacts, readStepVariables, readWorkflowRun } from '../../src/runner/environment.ts'

describe('readWorkflowRun', () => {
  it('has nulls outside a workflow', () => {
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
    assert.equal(run.workflow, 'Deploy :·:error:·:x')
    assert.deepEqual([run.run_id, run.run_attempt, run.job, run.actor], ['7', '2', 'deploy', 'operator'])
  })
})

describe('readStepVariables', () => {
  it("returns the step's own variables, and none of the runner's or the process's", () => {
    const runner = [
      'ACTIONS_RUNTIME_TOKEN',
      'GITHUB_TOKEN',
      'INPUT_API-KEY',
      'RUNNER_TRACKING_ID',
      'STATE_locked',
      'NODE_OPTIONS',
    ]
    const own = ['PATH', 'HOME', 'CI', 'USER', 'PWD']
    const env = Object.fromEntries([...runner, ...own, 'DB_URL', 'MY_GITHUB_ORG'].map(name => [name, 'x']))
    assert.deepEqual(Object.keys(readStepVariables({ ...env, GONE: undefined })), ['DB_URL', 'MY_GITHUB_ORG'])
  })
})

describe('readRunnerFacts', () => {
  it("puts private files into the runner's temporary folder, or into the system's outside a workflow", () => {
    assert.equal(readRunnerFacts({ RUNNER_TEMP: '/runner/_temp' }).temporaryFolder, '/runner/_temp')
    for (const env of [{}, { RUNNER_TEMP: '' }]) assert.equal(readRunnerFacts(env).temporaryFolder, tmpdir())
  })

  it("contains the workflow run and the step's own variables", () => {
    const env = { GITHUB_JOB: 'deploy', DB_URL: 'x' }
    const { workflow, variables } = readRunnerFacts(env)
    assert.deepEqual([workflow, variables], [readWorkflowRun(env), { DB_URL: 'x' }])
  })
})
