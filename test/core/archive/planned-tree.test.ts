import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PlannedTree } from '../../../src/core/archive/planned-tree.ts'

const [DEEP, FILES] = [60, 1000]

/** Counts how often a name is looked for in a directory. */
class CountingTree extends PlannedTree {
  searches = 0

  override find(...[directory, name]: Parameters<PlannedTree['find']>): ReturnType<PlannedTree['find']> {
    this.searches += 1
    return super.find(directory, name)
  }
}

describe('a planned tree', () => {
  it('searches the directories of a path once, in whatever order its files arrive', () => {
    const tree = new CountingTree('linux')
    const deep = Array.from({ length: DEEP }, (_, level) => `level-${level}`).join('/')
    for (let entry = 0; entry < FILES; entry++) tree.add(`${entry % 2}/${deep}/file-${entry}`, { type: 'file', entry })
    assert.equal(tree.searches, 2 * (DEEP + 1) + FILES)
  })

  it('orders its nodes by path, and returns the path of each', () => {
    const tree = new PlannedTree('linux')
    const nodes = ['a/name', 'b/name', 'name'].map((path, entry) => tree.add(path, { type: 'file', entry }))
    assert.deepEqual(
      nodes.map(({ path }) => path),
      ['a/name', 'b/name', 'name'],
    )
    assert.deepEqual(
      [...tree.inOrder(tree.top)].map(node => node.path),
      ['a', 'a/name', 'b', 'b/name', 'name'],
    )
  })
})
