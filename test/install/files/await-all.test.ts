import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { awaitAll } from '../../../src/install/files/await-all.ts'

describe('awaitAll', () => {
  it('returns the result of each piece of work, and plain values as they are', async () => {
    assert.deepEqual(await awaitAll(Promise.resolve('a'), 'b', undefined), ['a', 'b', undefined])
  })

  it('throws the first failure only after all work has ended', async () => {
    const slow = Promise.withResolvers<void>()
    let isOver = false
    const all = awaitAll(slow.promise, Promise.reject(new Error('first')), Promise.reject(new Error('second')))
    const ended = all.catch(error => {
      isOver = true
      return error
    })
    await new Promise(resolve => setImmediate(resolve))
    assert.equal(isOver, false)
    slow.resolve()
    assert.equal((await ended).message, 'first')
  })
})
