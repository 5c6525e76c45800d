import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../src/core/errors.ts'
import type { LocalReport } from '../../src/install/reports/local-report.ts'
import { createRunnerLog } from '../../src/runner/runner-log.ts'
import { tellResult } from '../../src/runner/tell-result.ts'
import { NO_REDACTION, reportOf } from '../install/prepared-host.ts'

const RUNNER_FILES = ['GITHUB_OUTPUT', 'GITHUB_STATE', 'GITHUB_STEP_SUMMARY']

/** The annotations of a run that ended like this, in their order. */
async function annotationsOf(t: TestContext, outcome: LocalReport['outcome'], error?: DeploymentError) {
  const environment = { ...process.env }
  for (const name of RUNNER_FILES) delete process.env[name]
  let output = ''
  const { mock } = t.mock.method(process.stdout, 'write', (text: string) => {
    output += text
    return true
  })
  try {
    const report = reportOf({ outcome, error: error ? { code: error.code, message: error.message, step: null } : null })
    const result = { report, reportPath: undefined, error, plannedSteps: [], unwritten: 'Could not write it.' }
    await tellResult(result, {}, NO_REDACTION, createRunnerLog(NO_REDACTION))
  } finally {
    mock.restore()
    process.env = environment
    process.exitCode = 0
  }
  return output.split('\n').filter(line => /^::(error|warning)/.test(line))
}

describe('tellResult', () => {
  it('tells what could not be written below the cause', async t => {
    const cause = new DeploymentError('host_not_writable', 'The root is read-only.')
    assert.deepEqual(await annotationsOf(t, 'failed', cause), [
      '::error title=host_not_writable::The root is read-only.',
      '::warning::Could not write it.',
    ])
  })

  it('tells what could not be written of a deployment that succeeded', async t => {
    assert.deepEqual(await annotationsOf(t, 'success'), ['::warning::Could not write it.'])
  })
})
