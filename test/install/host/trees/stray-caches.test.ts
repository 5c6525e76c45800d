import assert from 'node:assert/strict'
import { it } from 'node:test'
import { findStrayCaches } from '../../../../src/install/host/trees/stray-caches.ts'
import { temporaryDirectory, writeTree } from '../../temporary-directory.ts'

const write = (root: string, paths: readonly string[]): void =>
  writeTree(root, Object.fromEntries(paths.map(path => [path, path])))

const RECORDED = ['lib/__pycache__/shipped.pyc', 'src/main.py']

function strayIn(root: string, keepPaths: readonly string[] = []): Promise<string[] | undefined> {
  const record = RECORDED.map(path => ({
    path,
    kind: '644',
    content: String(path.length),
    sha256: '',
    stamp: undefined,
  }))
  return findStrayCaches({ root, keepPaths }, record)
}

it('names unrecorded caches as a whole, and single files next to recorded ones', async t => {
  const root = temporaryDirectory(t)
  write(root, [...RECORDED, 'lib/__pycache__/evil.pyc', 'lib/__pycache__/in/evil.so', '__pycache__/__pycache__/x.pyc'])
  write(root, ['src/__pycache__/a.pyc', 'src/__pycache__/b.pyc', 'src/more.py'])
  assert.deepEqual(await strayIn(root), [
    '__pycache__',
    'lib/__pycache__/evil.pyc',
    'lib/__pycache__/in/evil.so',
    'src/__pycache__',
  ])
})

it('leaves the files of the host in a cache alone', async t => {
  const root = temporaryDirectory(t)
  write(root, [...RECORDED, 'src/__pycache__/own/rows', 'src/__pycache__/evil.pyc', 'data/__pycache__/rows'])
  assert.deepEqual(await strayIn(root, ['data', 'src/__pycache__/own']), ['src/__pycache__/evil.pyc'])
})

it('lists nothing if there are more than 2,000 paths', async t => {
  const root = temporaryDirectory(t)
  write(root, [...RECORDED, ...Array.from({ length: 2001 }, (_, index) => `lib/__pycache__/${index}.pyc`)])
  assert.equal(await strayIn(root), undefined)
})
