import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { itemsOf } from '../../../../../src/install/host/trees/record/extracted-items.ts'
import { digestOfItems } from '../../../../../src/install/host/trees/record/recorded-item.ts'
import { treeOf } from '../recorded-tree.ts'

/** The vector of test/core/trust/tree-digest.test.ts, computed independently of this repository's code. */
const VECTOR = '018a3ab6a2623474b61c3ece5f04bf7c3138394d105d6c198e431825872f4597'

describe('the items of a tree', () => {
  it("count a symlink to a file with its target's bytes, as the known digest shows", () => {
    assert.equal(digestOf({ 'bin/run': '#!/bin/sh\n' }, { run: 'bin/run' }), VECTOR)
  })

  it('resolve a symlink from its own directory, and leave a symlink to a directory out of the digest', () => {
    const plain = digestOf({ 'bin/run': 'x', 'lib/link': 'x' })
    assert.equal(digestOf({ 'bin/run': 'x' }, { 'lib/link': '../bin/run' }), plain)
    assert.equal(digestOf({ 'bin/run': 'x' }, { all: 'bin' }), digestOf({ 'bin/run': 'x' }))
  })

  it('leave out everything below a keep-path, and nothing that merely begins like one', () => {
    const tree = treeOf({ 'data/db': '1', data2: '2', 'x/data/db': '3' }, { '.env': 'data2' })
    assert.deepEqual(
      [...itemsOf(tree, ['data', '.env'])].map(({ path }) => path),
      ['data2', 'x/data/db'],
    )
  })

  it('come in the order of the tree digest, symlinks among the files', () => {
    const tree = treeOf({ 'z.py': '', 'a.txt': '', 'a/b': '' }, { m: 'z.py', 'a/a': 'b' })
    assert.deepEqual(
      [...itemsOf(tree, [])].map(({ path }) => path),
      ['a/a', 'a/b', 'a.txt', 'm', 'z.py'],
    )
  })
})

function digestOf(...[files, symlinks = {}, keepPaths = []]: [object, object?, string[]?]): string {
  return digestOfItems(itemsOf(treeOf(files as Record<string, string>, symlinks as Record<string, string>), keepPaths))
}
