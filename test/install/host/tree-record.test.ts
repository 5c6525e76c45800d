import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it, type TestContext } from 'node:test'
import { DeploymentError } from '../../../src/core/errors.ts'
import { treeRecordPath } from '../../../src/install/host/layout.ts'
import {
  compareTree,
  pruneTreeRecords,
  readTreeRecord,
  type TreeDifference,
  writeTreeRecord,
} from '../../../src/install/host/tree-record.ts'
import { listTree } from '../archive/directory-listing.ts'
import { collectLog } from '../collected-log.ts'
import { prepareTemporaryHost } from '../prepared-host.ts'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'
import { recordOf } from './recorded-tree.ts'

const FILES = { 'bin/run': '#!/bin/sh\n', 'lib/a': 'a' }
const SYMLINKS = { run: 'bin/run' }

function makeTree(t: TestContext): string {
  const root = temporaryDirectory(t)
  writeTree(root, FILES)
  for (const path of Object.keys(FILES)) chmodSync(join(root, path), 0o644)
  for (const [path, target] of Object.entries(SYMLINKS)) symlinkSync(target, join(root, path))
  return root
}

describe('buildTreeRecord', () => {
  it("counts a symlink to a file with its target's bytes, by the known digest", () => {
    // The vector of test/core/tree-digest.test.ts, computed independently of this repository's code.
    const { digest } = recordOf({ 'bin/run': '#!/bin/sh\n' }, SYMLINKS)
    assert.equal(digest, '018a3ab6a2623474b61c3ece5f04bf7c3138394d105d6c198e431825872f4597')
  })

  it('resolves a symlink from its own directory, and leaves one to a directory out of the digest', () => {
    const plain = recordOf({ 'bin/run': 'x', 'lib/link': 'x' })
    assert.equal(recordOf({ 'bin/run': 'x' }, { 'lib/link': '../bin/run' }).digest, plain.digest)
    assert.equal(recordOf({ 'bin/run': 'x' }, { all: 'bin' }).digest, recordOf({ 'bin/run': 'x' }).digest)
  })

  it('leaves out everything below a keep-path, and nothing that merely begins like one', () => {
    const record = recordOf({ 'data/db': '1', data2: '2', 'x/data/db': '3' }, { '.env': 'data2' }, ['data', '.env'])
    assert.deepEqual([record.files.map(file => file.path), record.symlinks], [['data2', 'x/data/db'], []])
  })
})

describe('compareTree', () => {
  const cases: Record<string, { change: (root: string) => void; difference: Partial<TreeDifference> }> = {
    nothing: { change: () => {}, difference: {} },
    'an extra file': { change: root => writeFileSync(join(root, 'new'), ''), difference: { extra: ['new'] } },
    'a missing file': { change: root => rmSync(join(root, 'lib/a')), difference: { missing: ['lib/a'] } },
    'other bytes of the same length': {
      change: root => writeFileSync(join(root, 'lib/a'), 'b'),
      difference: { changed: ['lib/a'] },
    },
    'another length': { change: root => writeFileSync(join(root, 'lib/a'), 'aa'), difference: { changed: ['lib/a'] } },
    'another mode': { change: root => chmodSync(join(root, 'bin/run'), 0o755), difference: { changed: ['bin/run'] } },
    'a set-uid mark': {
      change: root => chmodSync(join(root, 'bin/run'), 0o4644),
      difference: { changed: ['bin/run'] },
    },
    'another target': {
      change: root => {
        rmSync(join(root, 'run'))
        symlinkSync('lib/a', join(root, 'run'))
      },
      difference: { changed: ['run'] },
    },
    'a file instead of a symlink': {
      change: root => {
        rmSync(join(root, 'run'))
        writeFileSync(join(root, 'run'), '#!/bin/sh\n', { mode: 0o644 })
      },
      difference: { changed: ['run'] },
    },
    'a directory instead of a file': {
      change: root => {
        rmSync(join(root, 'lib/a'))
        mkdirSync(join(root, 'lib/a'))
      },
      difference: { missing: ['lib/a'] },
    },
    'anything in a kept path': { change: root => writeTree(root, { 'data/db': '', 'data/x/y': '' }), difference: {} },
  }
  for (const [name, { change, difference }] of Object.entries(cases)) {
    it(`finds ${name}`, async t => {
      const root = makeTree(t)
      change(root)
      const found = await compareTree({ root, keepPaths: ['data'] }, recordOf(FILES, SYMLINKS))
      assert.deepEqual(found, { missing: [], extra: [], changed: [], ...difference })
    })
  }

  it('compares no recorded file that has become a kept path since', async t => {
    const root = makeTree(t)
    rmSync(join(root, 'lib/a'))
    writeTree(root, { 'bin/run': 'mine' })
    const found = await compareTree({ root, keepPaths: ['lib', 'bin/run', 'data', 'run'] }, recordOf(FILES, SYMLINKS))
    assert.deepEqual(found, { missing: [], extra: [], changed: [] })
  })

  it('treats a tree that does not exist as empty', async t => {
    const tree = { root: join(temporaryDirectory(t), 'gone'), keepPaths: [] }
    const { missing } = await compareTree(tree, recordOf(FILES, SYMLINKS))
    assert.deepEqual(missing.toSorted(), ['bin/run', 'lib/a', 'run'])
  })
})

describe('the stored records', () => {
  it('are read as they were written, and undefined when missing', async t => {
    const { layout, folder } = await prepareFolder(t)
    for (const record of [recordOf(FILES, SYMLINKS), recordOf({ data: '1', b: '2' }, { c: 'data' }, ['data'])]) {
      await writeTreeRecord(folder, record)
      await writeTreeRecord(folder, record)
      assert.deepEqual(readTreeRecord(layout, record.digest), record)
    }
    assert.equal(readTreeRecord(layout, 'ab'.repeat(32)), undefined)
    assert.deepEqual(folder.log.lines, [])
  })

  const damages: Record<string, (text: string) => string> = {
    'is empty': () => '',
    'is cut': text => text.slice(0, -1),
    'is no tree': () => '{}',
    'has NUL bytes': text => text.replaceAll(/./g, '\0'),
    'lacks a file': text => text.replace(/\{"path":"bin[^}]*\},/, ''),
    'has a file twice': text => text.replace(/(\{"path":"lib[^}]*\})/, '$1,$1'),
    'has another name': text => text.replace('lib/a', 'lib/b'),
    'has other bytes': text =>
      text.replace(/"sha256":"./, found => `${found.slice(0, -1)}${found.endsWith('0') ? 1 : 0}`),
    'has a path that leaves the tree': text => text.replace('lib/a', '../b'),
    'has an absolute path': text => text.replace('lib/a', '/etc'),
    'has a set-uid file': text => text.replace('"mode":420', '"mode":2541'),
    'has a negative size': text => text.replace('"size":', '"size":-'),
    'has a symlink without a target': text => text.replace('"target":"bin/run"', '"target":""'),
  }
  for (const [name, damage] of Object.entries(damages)) {
    it(`are named when one ${name}, and written again with a warning`, async t => {
      const { layout, folder, path, record } = await prepareFolder(t)
      await writeTreeRecord(folder, record)
      const text = readFileSync(path, 'utf8')
      writeFileSync(path, damage(text))
      assert.throws(
        () => readTreeRecord(layout, record.digest),
        error => error instanceof DeploymentError && error.message.includes(path),
      )
      await writeTreeRecord(folder, record)
      assert.equal(readFileSync(path, 'utf8'), text)
      assert.equal(folder.log.lines.length, 1)
      assert.match(folder.log.lines[0] ?? '', /^warning.*was damaged/)
      assert.ok(folder.log.lines[0]?.includes(path))
    })
  }

  const obstacles: Record<string, (path: string) => void> = {
    'a directory': path => mkdirSync(path),
    'a symlink to a genuine record': path => {
      writeFileSync(`${path}-real`, JSON.stringify(recordOf(FILES, SYMLINKS)))
      symlinkSync(`${path}-real`, path)
    },
    'a dangling symlink': path => symlinkSync('nowhere', path),
  }
  for (const [name, put] of Object.entries(obstacles)) {
    it(`are neither read through nor replaced where there is ${name}`, async t => {
      const { layout, folder, path, record } = await prepareFolder(t)
      put(path)
      const before = listTree(layout.trees)
      const refused = { code: 'host_not_writable' }
      assert.throws(() => readTreeRecord(layout, record.digest), refused)
      await assert.rejects(writeTreeRecord(folder, record), refused)
      assert.deepEqual(listTree(layout.trees), before)
    })
  }

  it('are removed when nothing refers to them any more', async t => {
    const { layout, folder } = await prepareFolder(t)
    const [used, stale] = [recordOf({ a: '1' }), recordOf({ a: '2' })]
    for (const record of [used, stale]) await writeTreeRecord(folder, record)
    mkdirSync(join(layout.trees, 'of-somebody'))
    writeFileSync(join(layout.trees, 'notes.json'), '')
    pruneTreeRecords(layout, new Set([used.digest]))
    assert.deepEqual(readdirSync(layout.trees).toSorted(), [`${used.digest}.json`, 'notes.json', 'of-somebody'])
  })
})

async function prepareFolder(t: TestContext) {
  const layout = await prepareTemporaryHost(t)
  const record = recordOf(FILES, SYMLINKS)
  return { layout, folder: { layout, log: collectLog() }, record, path: treeRecordPath(layout, record.digest) }
}
