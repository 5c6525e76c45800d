import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, renameSync, rmSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { isBelow } from '../../../../src/core/is-below.ts'
import { scanTree } from '../../../../src/install/files/trees/tree-scan.ts'
import { TreeStamps } from '../../../../src/install/host/trees/tree-stamps.ts'
import { rewriteKeepingTime } from '../../rewrite-keeping-time.ts'
import { temporaryDirectory, writeTree } from '../../temporary-directory.ts'
import { timesMoveOn } from '../../times-move-on.ts'

const keepPaths = ['data']

/** Scans a tree, changes and moves it. Resolves to true if the tree still has the stamps that the scan found. */
async function areSame(t: TestContext, change: (root: string) => void): Promise<boolean> {
  const folder = temporaryDirectory(t)
  const [root, moved] = [join(folder, 'tree'), join(folder, 'moved')]
  writeTree(root, { main: 'm', 'lib/a': '1', 'lib/deep/b': '2', 'data/db': 'rows' })
  mkdirSync(join(root, 'logs'))
  symlinkSync('main', join(root, 'link'))
  await timesMoveOn(root)
  const stamps = new TreeStamps()
  const onStamp = (path: string, stamp: string): void => stamps.see(path, stamp)
  assert.ok([...scanTree(root, { isLeftOut: isBelow(keepPaths), onStamp })].length > 0)
  change(root)
  renameSync(root, moved)
  return await stamps.areThoseOf({ root: moved, keepPaths }, new AbortController().signal)
}

const CHANGES: Record<string, (root: string) => void> = {
  'another byte in a file': root => writeFileSync(join(root, 'lib/a'), '9'),
  'another byte, with the old modification time': root => {
    rewriteKeepingTime(join(root, 'lib/a'), '9')
  },
  'another mode': root => chmodSync(join(root, 'lib/deep/b'), 0o755),
  'a file in the root': root => writeFileSync(join(root, 'new'), ''),
  'a file in a directory that was empty': root => writeFileSync(join(root, 'logs/new'), ''),
  'a removed file': root => unlinkSync(join(root, 'main')),
  'a removed directory': root => rmSync(join(root, 'lib'), { recursive: true }),
  'a symlink to elsewhere': root => {
    unlinkSync(join(root, 'link'))
    symlinkSync('/etc/passwd', join(root, 'link'))
  },
  'a symlink in place of the tree': root => {
    renameSync(root, `${root}-elsewhere`)
    symlinkSync(`${root}-elsewhere`, root)
  },
}

describe('the stamps of a tree', () => {
  for (const [name, change] of Object.entries(CHANGES))
    it(`differ after a change: ${name}`, async t => assert.equal(await areSame(t, change), false))

  it('are the same in a tree that was only moved, even if a kept path was moved out of it', async t => {
    assert.equal(await areSame(t, () => {}), true)
    assert.equal(await areSame(t, root => renameSync(join(root, 'data'), `${root}-data`)), true)
  })
})
