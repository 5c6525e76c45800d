import assert from 'node:assert/strict'
import { describe, it, type TestContext } from 'node:test'
import { FLOWS } from '../../src/actions/flows.ts'
import { DeploymentError } from '../../src/core/errors.ts'
import type { LocalReport } from '../../src/install/reports/local-report.ts'
import { ActionStep, type StepInputs } from '../../src/runner/action-step.ts'
import { reportOf } from '../install/prepared-host.ts'

const INPUTS: StepInputs<object> = {
  request: {},
  connection: { allowHttp: false, ca: undefined },
  secrets: [],
  settingValues: [],
  problems: [],
}
const RUNNER_FILES = ['GITHUB_OUTPUT', 'GITHUB_STATE', 'GITHUB_STEP_SUMMARY']

/** The annotations, in order, of a step whose deployment ended with this outcome and this error. */
async function annotationsOf(t: TestContext, outcome: LocalReport['outcome'], error?: DeploymentError) {
  const environment = { ...process.env }
  for (const name of RUNNER_FILES) delete process.env[name]
  const step = new ActionStep(INPUTS, FLOWS, () => ({}))
  let output = ''
  const { mock } = t.mock.method(process.stdout, 'write', (text: string) => {
    output += text
    return true
  })
  try {
    const report = reportOf({ outcome, error: error ? { code: error.code, message: error.message, step: null } : null })
    const result = { report, reportPath: undefined, error, plannedSteps: [], unwritten: 'Could not write it.' }
    await step.finish(result)
  } finally {
    step.close()
    mock.restore()
    process.env = environment
    process.exitCode = 0
  }
  return output.split('\n').filter(line => /^::(error|warning)/.test(line))
}

describe('ActionStep', () => {
  it('reports a file that could not be written along with the cause of the failure', async t => {
    const cause = new DeploymentError('host_not_writable', 'The root is read-only.')
    assert.deepEqual(await annotationsOf(t, 'failed', cause), [
      '::warning::Could not write it.',
      '::error title=host_not_writable::The root is read-only.',
    ])
  })

  it('reports a file that a successful deployment could not write', async t => {
    assert.deepEqual(await annotationsOf(t, 'success'), ['::warning::Could not write it.'])
  })
})
