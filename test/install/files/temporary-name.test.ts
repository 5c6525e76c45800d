import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ownerOfTemporary, temporaryName } from '../../../src/install/files/temporary-name.ts'

describe('temporaryName', () => {
  it('identifies the process that made it, as no other name does', () => {
    assert.equal(ownerOfTemporary(temporaryName('/x/report.json')), process.pid)
    for (const name of ['report.json', 'x.tmp', 'x.1.tmp', 'lock', '']) assert.equal(ownerOfTemporary(name), undefined)
  })
})
