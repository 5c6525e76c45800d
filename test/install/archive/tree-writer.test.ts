import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { makeDirectory, makeSymlink, writeFile, writeFileFrom } from '../../../src/install/archive/tree-writer.ts'
import { inTemporaryDirectory } from './verified-artifact.ts'

const CONTENT = Buffer.from('content')
const TO_A = { path: 'a', mode: 0o644 } as const

async function* pieces(): AsyncGenerator<Buffer> {
  yield CONTENT.subarray(0, 3)
  yield CONTENT.subarray(3)
}

const WAYS = {
  'a directory': async (root: string) => makeDirectory(root, 'a'),
  'a file': async (root: string) => writeFile(root, TO_A, CONTENT),
  'a file in pieces': (root: string) => writeFileFrom(root, TO_A, pieces()),
  'a symlink': async (root: string) => makeSymlink(root, { path: 'a', target: 'b' }),
}

describe('the tree writer', () => {
  for (const [what, make] of Object.entries(WAYS)) {
    it(`refuses to make ${what} where a file is`, async () => {
      await inTemporaryDirectory(async root => {
        writeFileSync(join(root, 'a'), 'untouched')
        await assert.rejects(make(root), { code: 'unsafe_archive' })
        assert.equal(readFileSync(join(root, 'a'), 'utf8'), 'untouched')
      })
    })

    it(`refuses to make ${what} through a dangling symlink`, async () => {
      await inTemporaryDirectory(async root => {
        symlinkSync('elsewhere', join(root, 'a'))
        await assert.rejects(make(root), { code: 'unsafe_archive' })
        assert.equal(statSync(join(root, 'elsewhere'), { throwIfNoEntry: false }), undefined)
      })
    })

    it(`tells a host that does not permit ${what}`, { skip: process.platform !== 'linux' }, async () => {
      await assert.rejects(make('/sys/kernel'), { code: 'host_not_writable' })
    })
  }

  it('gives a file in pieces the digest and size of the whole', async () => {
    await inTemporaryDirectory(async root => {
      mkdirSync(join(root, 'd'))
      const whole = writeFile(root, { path: 'd/whole', mode: 0o755 }, CONTENT)
      const pieced = await writeFileFrom(root, { path: 'd/pieced', mode: 0o755 }, pieces())
      assert.deepEqual({ ...pieced, path: '' }, { ...whole, path: '' })
    })
  })
})
