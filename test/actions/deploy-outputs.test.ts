import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { buildDeployOutputs } from '../../src/actions/deploy.ts'
import { DeploymentError } from '../../src/core/errors.ts'
import { reportOf } from '../install/prepared-host.ts'

const ROOT = '/srv/app'

describe('buildDeployOutputs', () => {
  it('returns every output of action.yml and no others, even when nothing is known', () => {
    const { outputs } = parse(readFileSync(join(import.meta.dirname, '..', '..', 'action.yml'), 'utf8'))
    const nothing = reportOf({ id: null, version: null, previous_version: null, artifact_sha256: null })
    for (const report of [reportOf(), nothing]) {
      assert.deepEqual(Object.keys(buildDeployOutputs({ report }, ROOT)).toSorted(), Object.keys(outputs).toSorted())
    }
    const {
      version,
      'previous-version': previous,
      'install-path': path,
    } = buildDeployOutputs({ report: nothing }, undefined)
    assert.deepEqual([version, previous, path], ['', '', ''])
  })

  for (const [kind, path] of [
    ['plugin', '/srv/app/plugins/greeter-2'],
    ['service', '/srv/app/extensions/greeter-2'],
  ] as const) {
    it(`names the installed directory of a ${kind}`, () => {
      const report = reportOf({ kind, id: 'greeter-2' })
      assert.equal(buildDeployOutputs({ report }, ROOT)['install-path'], path)
    })
  }

  it('leaves install-path empty when the id, the kind or the project root is not known', () => {
    for (const [report, root] of [
      [reportOf({ id: null }), ROOT],
      [reportOf({ kind: null }), ROOT],
      [reportOf(), undefined],
    ] as const) {
      assert.equal(buildDeployOutputs({ report }, root)['install-path'], '')
    }
  })

  it('reports a failure', () => {
    const error = { code: 'step_failed' as const, message: 'm', step: 'env' }
    const reported = { accepted: true, attempts: 1, error: null }
    const report = reportOf({ outcome: 'rolled_back', changed: false, error, reported })
    const outputs = buildDeployOutputs({ report, error: new DeploymentError('network', 'm') }, ROOT)
    const { outcome, changed, 'failed-step': step, 'error-code': code } = outputs
    assert.deepEqual(
      [outcome, changed, step, code, outputs['reported']],
      ['rolled_back', 'false', 'env', 'step_failed', 'true'],
    )
  })
})
