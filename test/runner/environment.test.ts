import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { readRunFacts } from '../../src/runner/environment.ts'

describe('readRunFacts', () => {
  it('has nulls outside a workflow', () => {
    assert.deepEqual(Object.values(readRunFacts({})), [null, null, null, null, null, null])
  })

  it('knows the run and where to look at it, in clean text', () => {
    const facts = readRunFacts({
      GITHUB_WORKFLOW: 'Deploy\n::error::x',
      GITHUB_RUN_ID: '7',
      GITHUB_RUN_ATTEMPT: '2',
      GITHUB_JOB: 'deploy',
      GITHUB_ACTOR: 'operator',
      GITHUB_SERVER_URL: 'https://code-host.example',
      GITHUB_REPOSITORY: 'example/operations',
    })
    assert.equal(facts.url, 'https://code-host.example/example/operations/actions/runs/7')
    assert.equal(facts.workflow, 'Deploy :·:error:·:x')
    assert.deepEqual([facts.run_id, facts.run_attempt, facts.job, facts.actor], ['7', '2', 'deploy', 'operator'])
  })
})
