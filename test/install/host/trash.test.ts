import assert from 'node:assert/strict'
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { emptyTrash, moveToTrash } from '../../../src/install/host/trash.ts'
import { listTree, temporaryDirectory, writeTree } from '../../folders.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'

const NEVER = new AbortController().signal

describe('moveToTrash', () => {
  const TAKEN: Record<string, (path: string) => void> = {
    'a tree': path => writeTree(path, { inner: 'earlier' }),
    'an empty directory': path => mkdirSync(path),
    'a file': path => writeFileSync(path, 'earlier'),
    'a symlink': path => symlinkSync('/', path),
  }
  for (const [what, occupy] of Object.entries(TAKEN)) {
    it(`finds another name if ${what} has the name already`, async t => {
      const layout = await prepareTemporaryHost(t)
      occupy(join(layout.trash, 'name'))
      const [before] = [listTree(layout.trash)]
      writeTree(layout.staging, { 'tree/file': 'refused' })
      moveToTrash(layout, join(layout.staging, 'tree'), 'name')
      const [other = ''] = readdirSync(layout.trash).filter(name => name !== 'name')
      assert.equal(readFileSync(join(layout.trash, other, 'file'), 'utf8'), 'refused')
      assert.partialDeepStrictEqual(listTree(layout.trash), before)
      await emptyTrash(layout, NEVER)
      assert.deepEqual([readdirSync(layout.trash), readdirSync(layout.staging)], [[], []])
    })
  }

  it('does nothing if there is nothing to move, but throws if there is no trash', async t => {
    const layout = await prepareTemporaryHost(t)
    moveToTrash(layout, join(layout.staging, 'missing'))
    writeTree(layout.staging, { 'tree/file': '' })
    const elsewhere = { ...layout, trash: join(temporaryDirectory(t), 'missing') }
    assert.throws(() => moveToTrash(elsewhere, join(layout.staging, 'tree')), { code: 'ENOENT' })
    await emptyTrash(elsewhere, NEVER)
  })
})
