import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { boundedTar } from '../../hub/archive/tar-bounds.ts'

async function* pieces(...sizes: number[]): AsyncGenerator<Buffer> {
  for (const size of sizes) yield Buffer.alloc(size)
}

async function passedSizes(...sizes: number[]): Promise<number[]> {
  const passed: number[] = []
  for await (const { length } of boundedTar(pieces(...sizes), { maxBytes: 100 })) passed.push(length)
  return passed
}

describe('boundedTar', () => {
  it('passes on a tar up to the limit', async () => {
    assert.deepEqual(await passedSizes(60, 40), [60, 40])
  })

  it('refuses a tar beyond the limit', async () => {
    await assert.rejects(passedSizes(60, 41), {
      message: 'The archive has a tar of more than 100 bytes, so hosts refuse it by default: remove some files.',
    })
  })
})
