import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { chmodSync, mkdirSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { describeTree } from '../../../../src/install/host/trees/modified-tree.ts'
import { itemsOf } from '../../../../src/install/host/trees/record/extracted-items.ts'
import { readTreeRecord } from '../../../../src/install/host/trees/record/read-tree-record.ts'
import { digestOfItems } from '../../../../src/install/host/trees/record/recorded-item.ts'
import { writeTreeRecord } from '../../../../src/install/host/trees/record/write-tree-record.ts'
import { compareTree } from '../../../../src/install/host/trees/tree-comparison.ts'
import { prepareTemporaryHost } from '../../prepared-host.ts'
import { writeTree } from '../../temporary-directory.ts'
import { installRecorded, treeOf } from './recorded-tree.ts'

const FILES = { 'bin/run': '#!/bin/sh\n', 'lib/a': 'a', 'lib/gone': 'x' }

const CHANGES: Record<string, (root: string) => void> = {
  'a changed, an added and a removed file': root => {
    writeFileSync(join(root, 'lib/a'), 'b')
    writeTree(root, { 'new/file': 'new' })
    rmSync(join(root, 'lib/gone'))
  },
  'another mode': root => chmodSync(join(root, 'bin/run'), 0o4755),
  'symlinks to anywhere and in a loop': root => {
    symlinkSync('/etc/hostname', join(root, 'etc'))
    symlinkSync('round', join(root, 'round'))
    symlinkSync('../bin/run', join(root, 'lib/link'))
    symlinkSync('lib/link', join(root, 'first'))
  },
  'a pipe': root => execFileSync('mkfifo', [join(root, 'pipe')]),
  'names with line breaks and quotes': root => writeTree(root, { 'a\nb\t"': '', '"': '' }),
  'a directory instead of a file': root => {
    rmSync(join(root, 'lib/a'))
    mkdirSync(join(root, 'lib/a'))
  },
}

describe('the description of a modified tree', () => {
  for (const [name, change] of Object.entries(CHANGES)) {
    it(`matches a tree with ${name}, but no longer after a later change`, async t => {
      const { layout, root, describe } = await makeInstalled(t)
      change(root)
      const identity = await writeTreeRecord(layout, (await describe()) ?? [])
      const tree = { root, keepPaths: ['data'] }
      const compare = async () => await compareTree(tree, readTreeRecord(layout, identity) ?? [])
      assert.deepEqual(await compare(), { added: [], removed: [], changed: [] })
      writeFileSync(join(root, 'bin/run'), 'something else')
      assert.deepEqual((await compare()).changed, ['bin/run'])
    })
  }

  it('has the digest of the actual files, without kept paths', async t => {
    const { root, describe } = await makeInstalled(t)
    writeTree(root, { 'lib/a': 'b', 'data/db': 'rows', new: 'n' })
    symlinkSync('new', join(root, 'link'))
    symlinkSync('/etc/hostname', join(root, 'outside'))
    const expected = treeOf({ ...FILES, 'lib/a': 'b', new: 'n', link: 'n' })
    assert.equal(digestOfItems((await describe()) ?? []), digestOfItems(itemsOf(expected, [])))
  })

  it('contains no bytecode that Python has cached', async t => {
    const { root, describe } = await makeInstalled(t)
    writeTree(root, { 'lib/__pycache__/a.pyc': '', 'lib/a.pyc': '' })
    const paths = (await describe())?.map(({ path }) => path)
    assert.deepEqual(paths, ['bin/run', 'lib/a', 'lib/a.pyc', 'lib/gone'])
  })

  it('is given up if two names that are not UTF-8 decode to the same text', async t => {
    const { root, describe } = await makeInstalled(t)
    for (const byte of [0xfe, 0xff]) writeFileSync(Buffer.concat([Buffer.from(`${root}/`), Buffer.from([byte])]), '')
    assert.equal(await describe(), undefined)
  })

  for (const path of ['cache.bin', 'lib/a']) {
    it(`is given up, after reading little, if ${path} has grown to a terabyte`, async t => {
      const { root, describe } = await makeInstalled(t)
      writeTree(root, { [path]: '' })
      truncateSync(join(root, path), 2 ** 40)
      assert.equal(await describe(), undefined)
    })
  }
})

async function makeInstalled(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const { root, ...identity } = await installRecorded(layout, FILES)
  const describe = async () => await describeTree({ root, keepPaths: ['data'] }, readTreeRecord(layout, identity) ?? [])
  return { layout, root, describe }
}
