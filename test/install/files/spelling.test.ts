import assert from 'node:assert/strict'
import { linkSync, mkdirSync, readdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { asListed, isSamePath, pathBelow, withListed } from '../../../src/install/files/spelling.ts'
import { mountFoldingDisk, whyNoFoldingDisk } from '../../e2e/harness/folding-disk.ts'
import { temporaryDirectory, writeTree } from '../../folders.ts'

const TREE = { 'plugins/greeter/DATA/Rows': '', 'plugins/greeter/caf\u00e9': '', 'plugins/other/data': '' }

describe('a path on a file system that distinguishes all spellings', () => {
  it('is only itself, whether anything is there or not', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { 'data/rows': '', 'DATA/rows': '' })
    for (const [one, other] of [
      ['data', 'DATA'],
      ['data/rows', 'DATA/rows'],
      ['missing', 'MISSING'],
      ['data/x/y', 'DATA/x/y'],
      ['caf\u00e9', 'cafe\u0301'],
    ] as const) {
      assert.equal(isSamePath(join(root, one), join(root, other)), false, other)
      assert.equal(isSamePath(join(root, one), join(root, one)), true, one)
      assert.equal(pathBelow(join(root, one), join(root, other, 'x')), undefined)
    }
  })

  it('is only itself in an empty directory, where no entry shows how the file system spells', t => {
    const root = temporaryDirectory(t)
    assert.equal(isSamePath(join(root, 'missing'), join(root, 'MISSING')), false)
  })

  it('is listed as it is written, even if an entry with another spelling exists', t => {
    const root = temporaryDirectory(t)
    writeTree(root, { 'data/rows': '', 'DATA/Rows': '', 'LOGS/x': '' })
    const paths = ['data/rows', 'DATA/Rows', 'Data', 'logs', 'missing/x']
    assert.deepEqual(withListed(root, paths), paths)
  })

  it('may have a second name, which differs in case, for the same inode', t => {
    const root = temporaryDirectory(t)
    writeFileSync(join(root, 'data'), '')
    linkSync(join(root, 'data'), join(root, 'DATA'))
    assert.equal(isSamePath(join(root, 'data'), join(root, 'DATA')), true)
    assert.deepEqual([asListed(root, 'data'), asListed(root, 'DATA')], ['data', 'DATA'])
  })
})

describe('the rest of a path below a folder', () => {
  for (const [folder, path, rest] of [
    ['/a/b', '/a/b/c/d', 'c/d'],
    ['/a/b', '/a/b', ''],
    ['/a/b', '/a/bc', undefined],
    ['/a/b', '/a', undefined],
  ] as const)
    it(`is ${rest} for ${path} below ${folder}`, () => assert.equal(pathBelow(folder, path), rest))
})

describe('a path on a file system that ignores case', { skip: whyNoFoldingDisk() }, () => {
  it('is the same in every spelling, whether anything is there or not', t => {
    const { mounted: root } = mountFoldingDisk(t)
    writeTree(root, TREE)
    for (const [one, other, isSame] of [
      ['plugins', 'Plugins', true],
      ['plugins/greeter', 'PLUGINS/Greeter', true],
      ['plugins/greeter/missing/x', 'Plugins/greeter/Missing/X', true],
      ['plugins/greeter/caf\u00e9', 'plugins/greeter/cafe\u0301', true],
      ['missing', 'Missing', true],
      ['plugins/greeter', 'Plugins/other', false],
      ['missing', 'missing2', false],
    ] as const)
      assert.equal(isSamePath(join(root, one), join(root, other)), isSame, `${one} and ${other}`)
  })

  it('is below every spelling of its folder', t => {
    const { mounted: root } = mountFoldingDisk(t)
    writeTree(root, TREE)
    assert.equal(pathBelow(join(root, 'PLUGINS/greeter'), join(root, 'plugins/Greeter/new/x')), 'new/x')
    assert.equal(pathBelow(join(root, 'PLUGINS/greeter'), join(root, 'plugins/other')), undefined)
    assert.equal(pathBelow(join(root, 'New'), join(root, 'new/x')), 'x')
  })

  it('is returned as it is listed', t => {
    const { mounted: root } = mountFoldingDisk(t)
    writeTree(root, TREE)
    assert.equal(asListed(root, 'Plugins/GREETER/data/rows'), 'plugins/greeter/DATA/Rows')
    assert.equal(asListed(root, 'plugins/other/Data'), 'plugins/other/data')
    assert.equal(asListed(join(root, 'plugins/greeter'), 'CAFE\u0301'), 'caf\u00e9')
    assert.equal(asListed(root, 'Plugins/Missing/X'), 'plugins/Missing/X')
    assert.deepEqual(withListed(join(root, 'plugins/greeter'), ['data', '.env']), ['data', 'DATA', '.env'])
  })
})

describe('the file system that ignores case in these tests', { skip: whyNoFoldingDisk() }, () => {
  it('keeps the first spelling of a name, and refuses a second one', t => {
    const { mounted, files } = mountFoldingDisk(t)
    mkdirSync(join(mounted, 'Data'))
    for (const make of [() => mkdirSync(join(mounted, 'DATA')), () => symlinkSync('x', join(mounted, 'data'))])
      assert.throws(make, { code: 'EEXIST' })
    writeFileSync(join(mounted, 'data/Rows'), 'one')
    writeFileSync(join(mounted, 'DATA/rows'), 'two')
    renameSync(join(mounted, 'dATA/ROWS'), join(mounted, 'moved'))
    assert.deepEqual(
      [readdirSync(files), readdirSync(mounted)],
      [
        ['Data', 'moved'],
        ['Data', 'moved'],
      ],
    )
    assert.deepEqual(readdirSync(join(mounted, 'DATA')), [])
  })
})
