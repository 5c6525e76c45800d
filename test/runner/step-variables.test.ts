import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { readStepVariables } from '../../src/runner/step-variables.ts'

describe('readStepVariables', () => {
  it("leaves the step's own variables, and nothing of the runner's or the process's", () => {
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
