import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { ConfigError } from '../../src/core/errors.ts'
import { toHostError } from '../../src/install/host-errors.ts'

function systemError(code: string): Error {
  return Object.assign(new Error(`${code}: no, open '/x\n::error::y'`), { code, errno: -1, syscall: 'open' })
}

describe('toHostError', () => {
  const codes = {
    ENOSPC: 'disk_full',
    EDQUOT: 'disk_full',
    EACCES: 'host_not_writable',
    EPERM: 'host_not_writable',
    EROFS: 'host_not_writable',
    EIO: 'step_failed',
  }
  for (const [errno, code] of Object.entries(codes)) {
    it(`tells ${errno} as ${code}, with what was being done, in clean text`, () => {
      const error = toHostError(systemError(errno), 'moving the tree')
      assert.equal(error.code, code)
      assert.match(error.message, /moving the tree/)
      assert.doesNotMatch(error.message, /::|\n/)
    })
  }

  it("passes an operator's error as it is", () => {
    const error = new ConfigError('invalid_input', 'x')
    assert.equal(toHostError(error, 'y'), error)
  })
})
