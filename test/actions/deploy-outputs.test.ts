import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { buildDeployOutputs } from '../../src/actions/deploy-outputs.ts'
import { reportOf } from '../install/prepared-host.ts'

describe('buildDeployOutputs', () => {
  it('has every output of action.yml and no other, also when nothing is known', () => {
    const { outputs } = parse(readFileSync(join(import.meta.dirname, '..', '..', 'action.yml'), 'utf8'))
    const nothing = { version: null, previous_version: null, artifact_sha256: null }
    for (const report of [reportOf(), reportOf(nothing)]) {
      assert.deepEqual(Object.keys(buildDeployOutputs({ report })).toSorted(), Object.keys(outputs).toSorted())
    }
    const {
      version,
      'previous-version': previous,
      'install-path': path,
    } = buildDeployOutputs({ report: reportOf(nothing) })
    assert.deepEqual([version, previous, path], ['', '', ''])
  })

  it('tells a failure', () => {
    const error = { code: 'step_failed' as const, message: 'm', step: 'env' }
    const reported = { accepted: true, attempts: 1, error: null }
    const outputs = buildDeployOutputs({
      report: reportOf({ outcome: 'rolled_back', changed: false, error, reported }),
    })
    const { outcome, changed, 'failed-step': step, 'error-code': code } = outputs
    assert.deepEqual(
      [outcome, changed, step, code, outputs['reported']],
      ['rolled_back', 'false', 'env', 'step_failed', 'true'],
    )
  })
})
