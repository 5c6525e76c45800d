import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, it } from 'node:test'
import { whyNoGitServer } from './git-server.ts'
import { type GitStage, namesIn, openGitStage } from './git-stage.ts'

const skip = whyNoGitServer() ?? false

describe('a part from git', { skip }, () => {
  let stage: GitStage
  before(async () => {
    stage = await openGitStage()
  })
  after(() => stage.close())

  it('is the tree of the commit, byte by byte, with symlinks and modes', async () => {
    const files = { 'plugin.yaml': 'name: x\n', 'src/main.py': '+x print()\r\n', 'src/link': '->main.py' }
    const ref = stage.repository('plain').commit(files)
    const { staged, tree, commit } = await stage.fetch({ url: `${stage.server.url}/plain`, ref })
    assert.equal(commit, ref)
    assert.deepEqual(namesIn(staged), ['plugin.yaml', 'src', 'src/link', 'src/main.py'])
    assert.equal(readFileSync(join(staged, 'src/link'), 'utf8'), 'print()\r\n')
    assert.deepEqual(
      tree.files.map(({ path, mode, size }) => [path, mode, size]),
      [
        ['plugin.yaml', 0o644, 8],
        ['src/main.py', 0o755, 9],
      ],
    )
    assert.deepEqual(
      namesIn(join(staged, '..')).filter(name => !name.startsWith('tree')),
      [],
    )
  })
})
