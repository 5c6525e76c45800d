import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { parseCommandFile } from '../../local/runner.ts'
import { DeploymentError } from '../../src/core/errors.ts'
import type { LocalReport } from '../../src/install/reports/local-report.ts'
import { outputsOfFailure, Step } from '../../src/runner/step.ts'
import { reportOf } from '../install/prepared-host.ts'

const RUNNER_FILES = ['GITHUB_OUTPUT', 'GITHUB_STATE', 'GITHUB_STEP_SUMMARY']

/** The annotations, in order, of a step whose deployment ended with this outcome and this error. */
async function annotationsOf(t: TestContext, outcome: LocalReport['outcome'], error?: DeploymentError) {
  const environment = { ...process.env }
  for (const name of RUNNER_FILES) delete process.env[name]
  const step = new Step({ secrets: [], settingValues: [] }, outputsOfFailure)
  let output = ''
  const { mock } = t.mock.method(process.stdout, 'write', (text: string) => {
    output += text
    return true
  })
  try {
    const report = reportOf({ outcome, error: error ? { code: error.code, message: error.message, step: null } : null })
    const result = { report, reportPath: undefined, error, plannedSteps: [], unwritten: 'Could not write it.' }
    step.finishDeployment(result)
  } finally {
    step.close()
    mock.restore()
    process.env = environment
    process.exitCode = 0
  }
  return output.split('\n').filter(line => /^::(error|warning)/.test(line))
}

describe('Step', () => {
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

/** Runs a step whose deployment never ends, in a separate process. */
function runUnsettled(t: TestContext, how: 'begun' | 'not begun') {
  const folder = mkdtempSync(join(tmpdir(), 'unsettled-'))
  t.after(() => rmSync(folder, { recursive: true }))
  const files = { GITHUB_OUTPUT: join(folder, 'output'), GITHUB_STATE: join(folder, 'state') }
  for (const file of Object.values(files)) writeFileSync(file, '')
  const program = join(import.meta.dirname, 'unsettled-step.ts')
  const env = { PATH: process.env['PATH'] ?? '', ...files }
  const { status, stdout, stderr } = spawnSync(process.execPath, [program, how], { env, encoding: 'utf8' })
  return { status, log: stdout + stderr, outputs: parseCommandFile(readFileSync(files.GITHUB_OUTPUT, 'utf8')) }
}

describe('a step whose deployment never ends', () => {
  for (const [how, outcome] of [
    ['begun', 'interrupted'],
    ['not begun', 'failed'],
  ] as const) {
    it(`fails with internal_error and sets its outputs when the deployment has ${how}`, t => {
      const { status, log, outputs } = runUnsettled(t, how)
      assert.equal(status, 1, log)
      assert.match(log, /^::error title=internal_error::This action stopped before its work had ended/m)
      assert.equal(outputs['outcome'], outcome)
      assert.equal(outputs['error-code'], 'internal_error')
    })
  }
})
