import assert from 'node:assert/strict'
import { closeSync, existsSync, openSync } from 'node:fs'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import { BlockWriter } from '../../src/net/block-writer.ts'
import { WRITE_BLOCK_BYTES } from '../../src/net/limits.ts'
import { openPrivateFile } from './private-file.ts'

describe('BlockWriter', () => {
  it('writes and shows every byte once and in order, in chunks of any size', async t => {
    const sizes = fc.array(fc.oneof(fc.nat(100), fc.nat(3 * WRITE_BLOCK_BYTES)), { maxLength: 6 })
    const property = fc.asyncProperty(sizes, fc.nat(255), async (lengths, seed) => {
      const chunks = lengths.map((length, index) => Buffer.alloc(length, seed + index))
      const file = openPrivateFile(t)
      const shown: Buffer[] = []
      const writer = new BlockWriter(file.fd, block => shown.push(Buffer.from(block)))
      for (const chunk of chunks) await writer.add(chunk)
      await writer.finish()
      const expected = Buffer.concat(chunks)
      assert.ok(expected.equals(file.read()) && expected.equals(Buffer.concat(shown)))
    })
    await fc.assert(property, { numRuns: 15 })
  })

  const skip = existsSync('/dev/full') ? false : 'there is no /dev/full here'
  it('throws disk_full on a full disk, at the latest when it finishes', { skip }, async t => {
    const fd = openSync('/dev/full', 'w')
    t.after(() => closeSync(fd))
    const writer = new BlockWriter(fd, () => {})
    await writer.add(Buffer.from('zip'))
    await assert.rejects(writer.finish(), { name: 'DeploymentError', code: 'disk_full' })
  })

  it('throws the failure of a write at the next call', { skip }, async t => {
    const fd = openSync('/dev/full', 'w')
    t.after(() => closeSync(fd))
    const writer = new BlockWriter(fd, () => {})
    await writer.add(Buffer.alloc(WRITE_BLOCK_BYTES))
    await writer.settle()
    await setImmediate()
    await assert.rejects(writer.finish(), { code: 'disk_full' })
  })

  it('throws disk_full while it gets more bytes', { skip }, async t => {
    const fd = openSync('/dev/full', 'w')
    t.after(() => closeSync(fd))
    const writer = new BlockWriter(fd, () => {})
    await assert.rejects(writer.add(Buffer.alloc(4 * WRITE_BLOCK_BYTES)), { code: 'disk_full' })
    await writer.settle()
  })
})
