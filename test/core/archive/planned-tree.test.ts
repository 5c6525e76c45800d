import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PlannedTree, TOP } from '../../../src/core/archive/planned-tree.ts'

/** Of so many names, about ten pairs have the same hash of 32 bits; only in one run of 35,000, none has. */
const MANY = 300_000

describe('a planned tree', () => {
  it('tells names apart that have the same hash, whatever the key', () => {
    const tree = new PlannedTree('linux')
    for (let entry = 0; entry < MANY; entry++) tree.add(`file-${entry}`, { type: 'file', entry })
    assert.equal(tree.count, MANY)
    for (let entry = 0; entry < MANY; entry += 997)
      assert.equal(tree.entryOf(tree.find(TOP, `file-${entry}`) ?? TOP), entry)
  })

  it('tells directories apart that contain the same name, whatever the key', () => {
    const tree = new PlannedTree('linux')
    for (let entry = 0; entry < MANY; entry++) tree.add(`${entry}/name`, { type: 'file', entry })
    assert.equal(tree.count, 2 * MANY)
  })

  it('orders what it contains by path, and gives each node its own', () => {
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
