import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { TreeWriter } from '../../../src/install/archive/writer.ts'
import { TimeSlice } from '../../../src/install/files/time-slice.ts'
import { describeItemSync } from '../../../src/install/files/walk.ts'
import { inTemporaryDirectory } from './artifacts.ts'

const CONTENT = Buffer.from('content')
const TO_A = { path: 'a', mode: 0o644 } as const

async function* pieces(): AsyncGenerator<Buffer> {
  yield CONTENT.subarray(0, 3)
  yield CONTENT.subarray(3)
}

function writerTo(root: string): TreeWriter {
  return new TreeWriter(root, new TimeSlice())
}

const WAYS = {
  'a directory': async (root: string) => writerTo(root).makeDirectory('a'),
  'a file': async (root: string) => writerTo(root).writeFile(TO_A, CONTENT),
  'a file in pieces': (root: string) => writerTo(root).writeFileFrom(TO_A, pieces()),
  'a symlink': async (root: string) => writerTo(root).makeSymlink({ path: 'a', target: 'b' }),
}

describe('TreeWriter', () => {
  for (const [what, make] of Object.entries(WAYS)) {
    it(`refuses to make ${what} where a file exists`, async () => {
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

    it(`reports a host that does not permit ${what}`, { skip: process.platform !== 'linux' }, async () => {
      await assert.rejects(make('/sys/kernel'), { code: 'host_not_writable' })
    })
  }

  it('returns the digest and size of a whole file that it wrote in pieces', async () => {
    await inTemporaryDirectory(async root => {
      mkdirSync(join(root, 'd'))
      const writer = writerTo(root)
      const whole = writer.writeFile({ path: 'd/whole', mode: 0o755 }, CONTENT)
      const pieced = await writer.writeFileFrom({ path: 'd/pieced', mode: 0o755 }, pieces())
      assert.deepEqual({ ...pieced, path: '', stamp: '' }, { ...whole, path: '', stamp: '' })
    })
  })

  for (const umask of [0o022, 0o077]) {
    it(`returns the final inode and times of each file, under umask ${umask.toString(8)}`, async t => {
      const before = process.umask(umask)
      t.after(() => process.umask(before))
      await inTemporaryDirectory(async root => {
        const writer = writerTo(root)
        const files = [
          writer.writeFile({ path: 'whole', mode: 0o755 }, CONTENT),
          await writer.writeFileFrom({ path: 'pieced', mode: 0o644 }, pieces()),
        ]
        for (const { path, mode, stamp } of files) {
          const found = describeItemSync(root, path)
          assert.deepEqual([found?.kind, found?.stamp], [mode.toString(8), stamp])
        }
      })
    })
  }
})
