import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import { describe, it } from 'node:test'
import fc from 'fast-check'
import { comparePaths, inTreeOrder, orderedTreeDigest, treeDigest } from '../../../src/core/trust/tree-digest.ts'

/**
 * Computed without this repository's code, in Python:
 *   def h(b): return hashlib.sha256(b).hexdigest()
 *   h('\n'.join(f'{p}:{h(b)}' for p, b in sorted(files.items(), key=lambda kv: kv[0].split('/'))).encode())
 * Python compares strings by code points.
 */
const VECTORS = [
  { name: 'an empty tree', files: {}, digest: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855' },
  {
    name: 'a/b before a-b and a.txt, component by component',
    files: { 'a.txt': '1', 'a/b': '2', 'a-b': '3' },
    digest: '4e91d0a48279e8552f719366b74477bb1ec24217eda1d287e2943baf9f63cd77',
  },
  {
    name: 'U+FF21 before U+1F600, by code points and not by UTF-16 units',
    files: { '\u{1f600}': '2', '\uff21': '1' },
    digest: '5b0e6b334b386a75594c220051abeef476caaa55b979c0524c8ff45436f8fd76',
  },
  {
    name: 'a symlink to a file, as a file with the bytes of its target',
    files: { run: '#!/bin/sh\n', 'bin/run': '#!/bin/sh\n' },
    digest: '018a3ab6a2623474b61c3ece5f04bf7c3138394d105d6c198e431825872f4597',
  },
]

describe('treeDigest', () => {
  for (const { name, files, digest } of VECTORS) {
    it(`computes the known digest of ${name}`, () => {
      const digested = Object.entries(files).map(([path, text]) => ({ path, sha256: hash('sha256', text) }))
      assert.equal(treeDigest(digested), digest)
      assert.equal(treeDigest(digested.toReversed()), digest)
      assert.equal(orderedTreeDigest(inTreeOrder(digested.toReversed())), digest)
    })
  }
})

describe('comparePaths', () => {
  const ordered = ['a', 'a/b', 'a/b/c', 'a/ba', 'a-b', 'a.txt', 'b', '\ud7ff', '\uff21', '\u{1f600}', '\u{1f601}']
  for (const [index, path] of ordered.slice(1).entries()) {
    it(`puts ${ordered[index]} before ${path}`, () => {
      assert.ok(comparePaths(ordered[index] as string, path) < 0)
      assert.ok(comparePaths(path, ordered[index] as string) > 0)
      assert.equal(comparePaths(path, path), 0)
    })
  }

  it('compares component by component, and each component by code points', () => {
    const part = fc.string({
      unit: fc.constantFrom('a', 'b', '.', '-', '\ud7ff', '\ue000', '\uff21', '\u{10000}', '\u{1f600}', '\u{1f601}'),
      maxLength: 3,
    })
    const path = fc.array(part, { minLength: 1, maxLength: 4 }).map(parts => parts.join('/'))
    fc.assert(
      fc.property(path, path, (a, b) => {
        assert.equal(Math.sign(comparePaths(a, b)), compareLists(codePoints(a), codePoints(b), compareNumberLists))
      }),
      { numRuns: 2000 },
    )
  })
})

function codePoints(path: string): number[][] {
  return path.split('/').map(part => Array.from(part, character => character.codePointAt(0) as number))
}

function compareNumberLists(a: number[], b: number[]): number {
  return compareLists(a, b, (x, y) => x - y)
}

function compareLists<T>(a: T[], b: T[], compare: (x: T, y: T) => number): number {
  const differing = a.findIndex((item, index) => index >= b.length || compare(item, b[index] as T) !== 0)
  if (differing === -1 || differing >= b.length) return Math.sign(a.length - b.length)
  return Math.sign(compare(a[differing] as T, b[differing] as T))
}
