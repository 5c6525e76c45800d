import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { parse } from 'yaml'
import { buildProjectOutputs } from '../../src/actions/project.ts'
import { DeploymentError } from '../../src/core/errors.ts'
import { reportOf } from '../install/prepared-host.ts'

const ROOT = '/srv/app'
const DEPLOYED = reportOf({
  contract: 'project',
  kind: null,
  slug: 'shop',
  id: null,
  plugins: [{ id: 'cart', version: '2.0.0' }],
})

describe('buildProjectOutputs', () => {
  it('returns every output of project/action.yml and no others, even when nothing is known', () => {
    const { outputs } = parse(readFileSync(join(import.meta.dirname, '../../project/action.yml'), 'utf8'))
    const nothing = reportOf({ contract: 'project', kind: null, slug: null, id: null, version: null })
    for (const report of [DEPLOYED, nothing]) {
      assert.deepEqual(
        Object.keys(buildProjectOutputs({ report, plannedSteps: [] }, ROOT)).toSorted(),
        Object.keys(outputs).toSorted(),
      )
    }
    const {
      version,
      'project-id': project,
      plugins,
      'install-path': path,
    } = buildProjectOutputs({ report: nothing, plannedSteps: [] }, undefined)
    assert.deepEqual([version, project, plugins, path], ['', '', '[]', ''])
  })

  it('names the project, its plugins and the project root', () => {
    const outputs = buildProjectOutputs({ report: DEPLOYED, plannedSteps: [] }, ROOT)
    assert.deepEqual([outputs['project-id'], outputs['install-path']], ['shop', ROOT])
    assert.deepEqual(JSON.parse(outputs['plugins'] ?? ''), [{ id: 'cart', version: '2.0.0' }])
  })

  it('returns the code of a refused report along with the outcome success (contract 7)', () => {
    const error = new DeploymentError('report_refused', 'm')
    const { outcome, 'error-code': code } = buildProjectOutputs({ report: DEPLOYED, plannedSteps: [], error }, ROOT)
    assert.deepEqual([outcome, code], ['success', 'report_refused'])
  })
})
