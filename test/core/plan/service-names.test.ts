import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { parseHostConfig } from '../../../src/core/plan/host-config.ts'
import { verifyServiceNames } from '../../../src/core/plan/service-names.ts'

describe('verifyServiceNames', () => {
  const config = parseHostConfig('version: 1\nsupervisor: docker\n', 'host.yaml')
  const refusalOf = (removedIds: string[]): string => {
    try {
      verifyServiceNames(config, { steps: [], removedIds })
      return ''
    } catch (error) {
      return String(error)
    }
  }

  it('names one id, several ids, and the first of thousands', () => {
    assert.match(refusalOf(['cart']), /chooses the id cart, could .* with its container for this id\./)
    assert.match(refusalOf(['cart', 'till']), /chooses the ids cart, till, could .* for each of these ids\./)
    const many = refusalOf(Array.from({ length: 2000 }, (_, n) => `part-${n}`))
    assert.match(many, /part-19 and 1980 more, could/)
  })
})
