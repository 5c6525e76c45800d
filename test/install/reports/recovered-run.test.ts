import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { describeRecovered } from '../../../src/install/reports/recovered-run.ts'
import { reportOf } from '../prepared-host.ts'

describe('describeRecovered', () => {
  const sentences = [
    ['failed', '1.0.0', 'it had changed no file, and 1.0.0 still runs.'],
    ['failed', null, 'it had changed no file, and no version is known to run.'],
    ['rolled_back', '1.0.0', 'it was rolled back to 1.0.0.'],
    ['rolled_back', null, 'it was rolled back, and no version is known to run.'],
    ['success', '2.0.0', 'it had been completed, and 2.0.0 runs.'],
  ] as const
  for (const [outcome, running_version, end] of sentences)
    it(`does not say that the recovery failed if the deployment ended as ${outcome}, with ${running_version} installed`, () => {
      const sentence = describeRecovered(reportOf({ outcome, running_version, version: '2.0.0' }))
      assert.equal(sentence, `The interrupted deployment of greeter 2.0.0 was recovered: ${end}`)
    })

  for (const [name, facts, subject] of [
    ['a rollback', { rollback_of: '2.0.0', version: '1.0.0' }, 'rollback of greeter to 1.0.0'],
    [
      'a rollback of which only the id is known',
      { rollback_of: null, slug: null, version: null },
      'rollback of greeter',
    ],
    ['a run of which nothing is known', { slug: null, id: null, version: null }, 'deployment'],
  ] as const)
    it(`names ${name}`, () => {
      const sentence = describeRecovered(reportOf({ ...facts, outcome: 'failed', running_version: '2.0.0' }))
      assert.equal(sentence, `The interrupted ${subject} was recovered: it had changed no file, and 2.0.0 still runs.`)
    })
})
