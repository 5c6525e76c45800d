import assert from 'node:assert/strict'
import { constants } from 'node:os'
import { describe, it } from 'node:test'
import { getSystemErrorName } from 'node:util'
import { ConfigError, errnoOf } from '../../../src/core/errors.ts'
import { toHostError } from '../../../src/install/files/errors.ts'
import { toWriteError } from '../../../src/net/download.ts'
import { temporaryDirectory } from '../../folders.ts'

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
    it(`reports ${errno} as ${code} and names the operation, in clean text`, () => {
      const error = toHostError(systemError(errno), 'moving the tree')
      assert.equal(error.code, code)
      assert.match(error.message, /moving the tree/)
      assert.doesNotMatch(error.message, /\n/)
    })
  }

  it('knows a full quota, for which Node has only a number', () => {
    const errno = -constants.errno.EDQUOT
    const code = getSystemErrorName(errno)
    const error = Object.assign(new Error(`${code}: ${code}, write`), { code, errno, syscall: 'write' })
    const { code: found, message } = toHostError(error, 'moving the tree')
    assert.deepEqual([errnoOf(error), found, toWriteError(error).code], ['EDQUOT', 'disk_full', 'disk_full'])
    assert.equal(
      message,
      "No space left while moving the tree (EDQUOT): free some space or inodes, or raise the quota of the runner's user, and run again.",
    )
  })

  it('leaves an error number that no system knows as it is', () => {
    const code = 'Unknown system error -4999'
    assert.equal(errnoOf(Object.assign(new Error(code), { code, errno: -4999, syscall: 'write' })), code)
  })

  describe('for a missing permission', { skip: process.getuid === undefined }, () => {
    const uid = process.getuid?.()
    for (const [name, path] of [
      ['an existing path', ''],
      ['the directory of a missing path', '/missing'],
    ] as const) {
      it(`names the runner's user and the owner of ${name}`, t => {
        const folder = temporaryDirectory(t)
        const error = Object.assign(systemError('EACCES'), { path: `${folder}${path}` })
        const { message } = toHostError(error, 'moving the tree')
        assert.ok(message.includes(`runs as uid ${uid}, and ${folder} belongs to uid ${uid}`), message)
      })
    }

    it('names only the user if no path is known', () => {
      const { message } = toHostError(systemError('EPERM'), 'moving the tree')
      assert.ok(message.includes(`runs as uid ${uid}:`), message)
      assert.ok(!message.includes('belongs'), message)
    })
  })

  it('distinguishes a read-only file system from a missing permission', () => {
    const { message } = toHostError(systemError('EROFS'), 'moving the tree')
    assert.match(message, /mounted read-only/)
    assert.doesNotMatch(message, /uid/)
  })

  it('ends with one period, even if the quoted message ends with its own', () => {
    const { message } = toHostError(new Error('The record is gone.'), 'moving the tree')
    assert.equal(message, 'Failed while moving the tree: The record is gone.')
  })

  it('passes a DeployError unchanged', () => {
    const error = new ConfigError('invalid_input', 'x')
    assert.equal(toHostError(error, 'y'), error)
  })
})
