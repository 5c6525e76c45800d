import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PlannedTree, TOP } from '../../../src/core/archive/planned-tree.ts'

/** Among so many names, about ten pairs have the same 32-bit hash; only one run in 35,000 has no such pair. */
const MANY = 300_000

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
  it('distinguishes names with the same hash, whatever the key', () => {
    const tree = new PlannedTree('linux')
    for (let entry = 0; entry < MANY; entry++) tree.add(`file-${entry}`, { type: 'file', entry })
    assert.equal(tree.count, MANY)
    for (let entry = 0; entry < MANY; entry += 997)
      assert.equal(tree.entryOf(tree.find(TOP, `file-${entry}`) ?? TOP), entry)
  })

  it('distinguishes directories that contain the same name, whatever the key', () => {
    const tree = new PlannedTree('linux')
    for (const name of ['name', 'other'])
      for (let entry = 0; entry < MANY; entry++) tree.add(`${entry}/${name}`, { type: 'file', entry })
    assert.equal(tree.count, 3 * MANY)
  })

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
      nodes.map(node => tree.pathOf(node)),
      ['a/name', 'b/name', 'name'],
    )
    assert.deepEqual(
      [...tree.inOrder(TOP)].map(node => tree.pathOf(node)),
      ['a', 'a/name', 'b', 'b/name', 'name'],
    )
  })
})
