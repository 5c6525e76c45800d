import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { adviceAfter } from '../../../scripts/try/advice.ts'
import { readSources } from '../../../scripts/try/sources.ts'

const PROJECT = join(import.meta.dirname, '../../../examples/project')

describe('adviceAfter', () => {
  const adviceFor = (failedStep: string, outcome = 'rolled_back'): string => {
    const outputs = { outcome, 'failed-step': failedStep }
    const result = { exitCode: 1, signal: null, outputs, summary: '', log: '', state: {} }
    return adviceAfter(result as never, readSources(PROJECT, {}), { break: true, root: '/tmp/try' })
  }

  it('distinguishes the step that --break adds from a step of the project', () => {
    assert.match(adviceFor('broken'), /^The broken step is sealed into 1\.0\.0\./)
    assert.match(adviceFor('migrate'), /^Correct what the error names/)
  })

  it('does not call it the end of a trial if the rollback failed', () => {
    assert.match(adviceFor('broken', 'inconsistent'), /^Correct what the error names/)
  })
})
