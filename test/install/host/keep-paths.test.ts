import assert from 'node:assert/strict'
import { symlinkSync } from 'node:fs'
import { describe, it } from 'node:test'
import { dropShipped, findKeptPaths, findMovablePaths, presentPaths } from '../../../src/install/host/keep-paths.ts'
import { listTree } from '../archive/directory-listing.ts'
import { temporaryDirectory, writeTree } from '../temporary-directory.ts'

describe('findKeptPaths', () => {
  const cases = {
    'only existing paths': [['.env', 'data'], ['data']],
    'a path listed twice only once': [['data', 'data'], ['data']],
    'the outer of two': [['data/db', 'data'], ['data']],
    'both of two that merely begin alike': [
      ['data', 'data2'],
      ['data', 'data2'],
    ],
    'nothing below a file': [['data2/x'], []],
  } as const
  for (const [name, [keepPaths, kept]] of Object.entries(cases)) {
    it(`finds ${name}`, t => {
      const installed = temporaryDirectory(t)
      writeTree(installed, { 'data/db': 'rows', data2: 'x' })
      assert.deepEqual(findKeptPaths({ root: installed, keepPaths }, temporaryDirectory(t)), kept)
    })
  }

  it('finds nothing if no version is installed', t => {
    assert.deepEqual(findKeptPaths({ root: '/no/such/place', keepPaths: ['data'] }, temporaryDirectory(t)), [])
  })
})

describe('findMovablePaths', () => {
  it('asks for a directory if the tree itself is a symlink', t => {
    const folder = temporaryDirectory(t)
    writeTree(folder, { 'tree/data': 'x' })
    symlinkSync('tree', `${folder}/link`)
    const find = () => findMovablePaths({ root: `${folder}/link`, keepPaths: ['data'] })
    assert.throws(find, {
      code: 'step_failed',
      message: /^The kept path data cannot be moved to another version: \S+ is not a directory\. Replace it with a/,
    })
  })
})

describe('dropShipped', () => {
  it('removes and returns the paths that the host keeps', async t => {
    const staged = temporaryDirectory(t)
    writeTree(staged, { main: 'new', 'data/db': 'empty' })
    assert.deepEqual(await dropShipped(staged, ['data', '.env']), ['data'])
    assert.deepEqual(Object.keys(listTree(staged)), ['main'])
  })
})

describe('presentPaths', () => {
  it('returns the paths that exist, without those inside another of the paths', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { '.env': 'A=1', 'data/db': 'rows' })
    assert.deepEqual(presentPaths(root, ['data/db', 'data', 'cache', '.env']), ['data', '.env'])
    assert.deepEqual(presentPaths(`${root}/gone`, ['data']), [])
  })
})
