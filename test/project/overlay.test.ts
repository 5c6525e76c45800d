import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { TimeSlice } from '../../src/install/files/time-slice.ts'
import { layOverStub, type PlacedTree } from '../../src/project/overlay.ts'
import { writeFiles } from '../e2e/harness/stage.ts'
import { namesIn } from '../sources/git/git-stage.ts'

function placed(t: TestContext, files: Record<string, string>, links: Record<string, string> = {}): PlacedTree {
  const staged = mkdtempSync(join(tmpdir(), 'overlay-'))
  t.after(() => rmSync(staged, { recursive: true }))
  writeFiles(staged, files)
  return {
    staged,
    tree: {
      files: Object.entries(files).map(([path, text]) => {
        return { path, size: text.length, mode: 0o644 as const, sha256: hash('sha256', text) }
      }),
      symlinks: Object.entries(links).map(([path, target]) => ({ path, target, file: null, reach: '' })),
    },
  }
}

describe('a fetched tree', () => {
  it('is laid over the stub: it wins where both have a name, and nothing of the stub is written through it', async t => {
    const fetched = placed(t, { 'plugin.yaml': 'fetched', 'src/a': 'fetched', file: 'fetched' }, { link: '/etc' })
    const stub = placed(
      t,
      {
        ...{ 'plugin.yaml': 'stub', '.env.template': 'stub', 'conf/deep/x.template': 'stub' },
        ...{ 'file/x.template': 'stub', 'link/x.template': 'stub' },
      },
      {},
    )
    const { staged, tree } = await layOverStub(fetched, stub, new TimeSlice())
    const all = ['.env.template', 'conf', 'conf/deep', 'conf/deep/x.template', 'file', 'plugin.yaml', 'src', 'src/a']
    assert.deepEqual(namesIn(staged), all)
    assert.equal(readFileSync(join(staged, 'plugin.yaml'), 'utf8'), 'fetched')
    assert.equal(statSync(join(staged, 'conf/deep')).mode & 0o777, 0o755)
    assert.deepEqual(
      tree.files.map(({ path }) => path),
      ['.env.template', 'conf/deep/x.template', 'file', 'plugin.yaml', 'src/a'],
    )
    assert.deepEqual(
      tree.symlinks.map(({ path }) => path),
      ['link'],
    )
  })

  it('takes no symlink from the stub', async t => {
    const { tree } = await layOverStub(placed(t, { a: '1' }), placed(t, {}, { link: 'a' }), new TimeSlice())
    assert.deepEqual(tree.symlinks, [])
  })
})
